# SPDX-License-Identifier: Apache-2.0
"""``penstock relay``: publish the messages of one stream on another."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

import attrs
import click

from penstock.cli._common import (
    STREAM_ID,
    connect_option,
    directory_option,
    json_option,
    print_json,
    reattach_option,
    tell,
)
from penstock.client._relay import DEFAULT_LINGER_S, Relay, relay
from penstock.config.settings.load import load_file
from penstock.config.settings.models import DaemonConfig
from penstock.config.settings.relays import RelayRule
from penstock.config.uri import parse

_NS: Final = 1e-9
_SECONDS: Final = click.FloatRange(min=0, min_open=True)


@click.command("relay", short_help="Publish the messages of one stream on another.")
@click.argument("source", required=False)
@click.argument("target", required=False)
@click.option("--stream", type=STREAM_ID, help="Stream to read.  Default: SOURCE's stream-id.")
@click.option("--target-stream", type=STREAM_ID,
              help="Stream to publish.  Default: TARGET's stream-id, then the stream to read.")
@click.option("--name", default="", metavar="NAME",
              help="Name of the relay: a process continues the last one of its name.  Default: "
              "made of channels and streams.")
@click.option("--linger", "linger_s", type=_SECONDS, metavar="SECONDS",
              help=f"Source and target wait so long for the next process.  Default: "
              f"{DEFAULT_LINGER_S:g}.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), metavar="FILE",
              help="Run the [[relay]] called NAME of this file instead of SOURCE and TARGET.")
@click.option("--idle-end", "idle_s", type=_SECONDS, metavar="SECONDS",
              help="End when nothing came for so long.  Default: never.")
@json_option
@directory_option
@connect_option
@reattach_option
def command(
    source: str | None,
    target: str | None,
    stream: int | None,
    target_stream: int | None,
    name: str,
    linger_s: float | None,
    config_file: Path | None,
    idle_s: float | None,
    as_json: bool,
    directory: str | None,
    connect_s: float,
    reattach_s: float,
) -> None:
    """Publish the messages of the channel SOURCE on the channel TARGET, with this host's daemon.

    The relay releases a message of SOURCE only when it has published the message on TARGET. If
    TARGET is blocked by a slow reader, the relay therefore also slows down the publisher of SOURCE.
    On SIGTERM the command ends without losing messages: the next relay process with the same name
    continues at the same message. Ctrl-C ends the relay.
    """
    if config_file is not None:
        if source is not None or not name:
            raise click.UsageError("the channels come from the file of --config: give only --name")
        rule = _rule(load_file(config_file), name, config_file)
    else:
        if source is None or target is None:
            raise click.UsageError("give SOURCE and TARGET, or --config FILE and --name NAME")
        rule = RelayRule(source=source, target=target)
    wanted = stream if stream is not None else rule.source_stream
    if wanted is None:
        wanted = parse(rule.source).stream_id
    if wanted is None:
        raise click.UsageError("give --stream, or state stream-id in SOURCE")
    logging.basicConfig(level=logging.INFO, format="penstock: %(message)s", stream=sys.stderr)
    made = relay(
        rule.source, wanted, rule.target, _target_stream(rule, target_stream), name=name,
        directory=directory, linger_s=rule.linger_ns * _NS if linger_s is None else linger_s,
        timeout_s=connect_s, reattach_timeout_s=reattach_s,
    )
    with made:
        ended = _run(made, idle_s)
    if as_json:
        print_json(attrs.asdict(made.statistics()))
    if ended == signal.SIGINT:
        raise KeyboardInterrupt


def _rule(config: DaemonConfig, name: str, file: Path) -> RelayRule:
    for rule in config.relay:
        if rule.name == name:
            return rule
    known = ", ".join(rule.name for rule in config.relay) or "none"
    raise click.ClickException(
        f"{file}: no [[relay]] has the name {name!r}; the names in this file are: {known}"
    )


def _target_stream(rule: RelayRule, stated: int | None) -> int | None:
    if stated is not None:
        return stated
    return parse(rule.target).stream_id if rule.target_stream is None else rule.target_stream


def _run(made: Relay, idle_s: float | None) -> int:
    """Relay until a signal comes or ``--idle-end``; SIGTERM hands over. Returns the signal or 0."""
    came: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    previous = {each: signal.signal(each, on_signal) for each in (signal.SIGTERM, signal.SIGINT)}
    tell(f"relay {made.name} runs, with the id {made.relay_id:016x}")
    try:
        made.run(_end(made, came, idle_s))
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if came and came[0] == signal.SIGTERM:
        made.hand_over()
    return came[0] if came else 0


def _end(made: Relay, came: list[int], idle_s: float | None) -> Callable[[], bool]:
    """Return the condition that ends the relay."""
    last = [0, time.monotonic()]

    def ended() -> bool:
        if came:
            return True
        if idle_s is None:
            return False
        messages = made.statistics().messages
        if messages != last[0]:
            last[:] = messages, time.monotonic()
        return time.monotonic() - last[1] >= idle_s

    return ended
