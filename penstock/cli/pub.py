# SPDX-License-Identifier: Apache-2.0
"""``penstock pub``: publishes lines, records or generated messages."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

import click

from penstock.cli._common import (
    STREAM_ID,
    connect_option,
    connected,
    directory_option,
    json_option,
    parse_count,
    parse_rate,
    print_json,
    reattach_option,
    wait_for_receiver,
)
from penstock.cli._progress import Progress
from penstock.cli._records import Digest, generated, read_lines, read_records
from penstock.client import Client, Publication
from penstock.client._inspect import open_counters, sent_position
from penstock.core.errors import PenstockError, TimeoutExpired

_GROUP = 256
_DRAIN_POLL_S = 0.005
_LEAST_SIZE_WITH_NUMBER = 8


@click.command("pub", short_help="Publish lines, records or generated messages.")
@click.argument("channel")
@click.argument("stream", type=STREAM_ID)
@click.argument("file", type=click.File("rb"), required=False)
@click.option("--length-prefixed", is_flag=True, help="Input is records: u32 LE length, bytes.")
@click.option("--count", type=parse_count, metavar="COUNT",
              help="Publish this many generated messages instead, e.g. 1000 or 10k.")
@click.option("--size", type=click.IntRange(min=0), default=32, show_default=True,
              help="Bytes of a generated message.")
@click.option("--rate", type=parse_rate, metavar="RATE",
              help="Messages a second at most, e.g. 5000 or 5k/s.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), default=10.0,
              show_default=True, help="Seconds to wait for a receiver, for room, for the drain.")
@click.option("--linger", "linger_s", type=click.FloatRange(min=0), default=0.0,
              show_default=True, help="Seconds to stay after everything was sent.")
@click.option("--exclusive", is_flag=True, help="Use a session of its own.")
@click.option("--sha256", is_flag=True, help="Print the SHA-256 of what was sent.")
@json_option
@directory_option
@connect_option
@reattach_option
def command(
    channel: str,
    stream: int,
    file: BinaryIO | None,
    length_prefixed: bool,
    count: int | None,
    size: int,
    rate: float | None,
    timeout_s: float,
    linger_s: float,
    exclusive: bool,
    sha256: bool,
    as_json: bool,
    directory: str | None,
    connect_s: float,
    reattach_s: float,
) -> None:
    """Publish messages to STREAM on CHANNEL. The messages are the lines or records of FILE or of
    standard input; with --count, the command generates the messages.

    The command first waits for a receiver. The command ends when all messages were sent.
    """
    groups = _source(file, length_prefixed=length_prefixed, count=count, size=size)
    digest = Digest() if sha256 else None
    with (
        connected(directory, "penstock pub", connect_s, reattach_s) as client,
        _add(client, channel, stream, exclusive=exclusive) as publication,
        Progress("sent", total=count, enabled=not as_json) as progress,
    ):
        if not wait_for_receiver(publication, timeout_s):
            raise TimeoutExpired(
                f"no receiver subscribed to stream {stream} on {channel} within {timeout_s:g} s"
            )
        progress.begin()
        for group in _paced(groups, rate):
            publication.send_batch(group, timeout_s)
            if digest is not None:
                for message in group:
                    digest.add(message)
            progress.add(len(group), sum(map(len, group)))
        _drain(client, publication, timeout_s)
        progress.touch()
        result = {
            **progress.summary(),
            "position": publication.position,
            "session_id": publication.session_id,
        }
        time.sleep(linger_s)
    _report(result, digest, as_json=as_json)


def _add(client: Client, channel: str, stream: int, *, exclusive: bool) -> Publication:
    if exclusive:
        return client.add_exclusive_publication(channel, stream)
    return client.add_publication(channel, stream)


def _source(
    file: BinaryIO | None, *, length_prefixed: bool, count: int | None, size: int
) -> Iterable[list[bytes]]:
    if count is not None:
        if file is not None or length_prefixed:
            raise click.UsageError(
                "--count generates messages: give neither FILE nor --length-prefixed with it"
            )
        return generated(count, size, group=_GROUP)
    source = file if file is not None else sys.stdin.buffer
    return read_records(source) if length_prefixed else read_lines(source)


def _paced(groups: Iterable[list[bytes]], rate: float | None) -> Iterator[list[bytes]]:
    """Yield groups of at most _GROUP messages; with a rate, only messages that are due."""
    if rate is None:
        for group in groups:
            for first in range(0, len(group), _GROUP):
                yield group[first : first + _GROUP]
        return
    start, sent = time.monotonic(), 0
    for group in groups:
        first = 0
        while first < len(group):
            due = int((time.monotonic() - start) * rate) + 1 - sent
            if due <= 0:
                time.sleep(max(0.0, start + sent / rate - time.monotonic()))
                continue
            part = group[first : first + min(due, _GROUP)]
            yield part
            first += len(part)
            sent += len(part)


def _drain(client: Client, publication: Publication, timeout_s: float) -> None:
    """Wait until the daemon has sent everything."""
    deadline = time.monotonic() + timeout_s
    target = publication.position
    with open_counters(client.directory) as cnc:
        while True:
            sent = sent_position(cnc, publication.original_id)
            if sent is None or sent >= target:
                return
            if not client.is_daemon_alive:
                raise PenstockError(
                    f"the daemon died with {target - sent} bytes of stream "
                    f"{publication.stream_id} not sent"
                )
            if time.monotonic() > deadline:
                raise TimeoutExpired(
                    f"{target - sent} bytes of stream {publication.stream_id} were not sent "
                    f"within {timeout_s:g} s: are its receivers alive?"
                )
            time.sleep(_DRAIN_POLL_S)


def _report(result: dict[str, Any], digest: Digest | None, *, as_json: bool) -> None:
    if digest is not None:
        result["sha256"] = digest.hexdigest()
    if as_json:
        print_json(result)
    elif digest is not None:
        click.echo(digest.hexdigest())
