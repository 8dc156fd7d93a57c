# SPDX-License-Identifier: Apache-2.0
"""``penstock bench``: measures this machine with daemons and clients that the command starts."""

from __future__ import annotations

import re
import signal
import sys
from typing import Any, Final

import click

from penstock.cli._common import json_option, print_json

_SIZES: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parse_bytes(value: str) -> int:
    """Parse a length such as 1408, 64k or 16m."""
    match = re.fullmatch(r"(\d+)([kmg]?)", value.lower())
    if match is None:
        raise click.BadParameter(
            f"{value!r} is not a length: give one such as 1408, 64k or 16m"
        )
    return int(match[1]) * _SIZES[match[2]]


@click.command("bench", short_help="Measure throughput, round trips, idle cost, many streams.")
@click.argument("work", type=click.Choice(["udp", "ipc", "rtt", "idle", "streams"]))
@click.option("--client", type=click.Choice(["native", "python", "batch"]), default="native",
              show_default=True, help="Loops in C, one message a call in Python, or batches.")
@click.option("--size", type=click.IntRange(16, 65536), default=32, show_default=True,
              help="Bytes of a message.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=3.0,
              show_default=True, help="Measured time.")
@click.option("--warmup", "warmup_s", type=click.FloatRange(0), default=1.0, show_default=True,
              help="Seconds before it.")
@click.option("--threading", type=click.Choice(["SHARED", "DEDICATED"], case_sensitive=False),
              default="SHARED", show_default=True, help="The daemons' threads.")
@click.option("--idle", type=click.Choice(["park", "backoff", "yield", "spin"]), default="park",
              show_default=True, help="What a daemon's thread without work does.")
@click.option("--window", type=parse_bytes, metavar="BYTES", default="1m", show_default=True,
              help="Receiver window.")
@click.option("--term-length", type=parse_bytes, metavar="BYTES", default="16m",
              show_default=True, help="Of each stream.")
@click.option("--mtu", type=parse_bytes, metavar="BYTES", default="1408", show_default=True,
              help="Largest datagram.")
@click.option("--so-buffers", type=parse_bytes, metavar="BYTES", default="2m",
              show_default=True, help="SO_SNDBUF and SO_RCVBUF.")
@click.option("--spin-us", type=click.FloatRange(0), default=0.0, show_default=True,
              help="rtt: how long a client looks before it sleeps.")
@click.option("--streams", type=click.IntRange(1, 4000), default=100, show_default=True,
              help="idle: connected streams.")
@click.option("--open", type=click.IntRange(1, 20_000), default=1000, show_default=True,
              help="streams: how many streams are open.")
@click.option("--busy", type=click.IntRange(1, 100), default=10, show_default=True,
              help="streams: how many of the open ones carry messages.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), default=200_000.0,
              show_default=True, help="streams: messages a second in all.")
@click.option("--credits", type=click.IntRange(0), default=0, show_default=True,
              help="udp, ipc, rtt: messages that each subscription grants; 0: no credits.")
@click.option("--shared", is_flag=True, help="udp, ipc: the publication is not exclusive.")
@click.option("--veth", is_flag=True, help="Between two network namespaces (root) instead of "
              "over loopback.")
@json_option
def command(work: str, as_json: bool, **options: Any) -> None:
    """Measure WORK: throughput (udp, ipc), round trips (rtt), the processor time of idle daemons
    (idle), or the processor time of many open streams (streams). The command starts daemons and
    clients, checks that every message arrives in order, prints the result and removes its files."""
    from penstock._bench.runner import Settings, run  # loads the client only for this command

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    result = run(work, Settings(**options))
    if as_json:
        print_json(result)
    else:
        for name, value in result.items():
            click.echo(f"{name:16} {_text(value)}")
    if result.get("hash_ok") is False:
        raise click.ClickException("messages were lost, repeated or changed")


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, dict):
        return ", ".join(f"{name}={_text(inner)}" for name, inner in value.items())
    return str(value)
