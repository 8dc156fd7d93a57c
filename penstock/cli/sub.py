# SPDX-License-Identifier: Apache-2.0
"""``penstock sub``: write the messages of a stream."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import Any, BinaryIO

import click

from penstock.cli._common import (
    STREAM_ID,
    connect_option,
    connected,
    directory_option,
    json_option,
    parse_count,
    print_json,
    reattach_option,
)
from penstock.cli._progress import Progress
from penstock.cli._records import Digest, terminal_writer, writer
from penstock.client import Header, Image, Subscription
from penstock.core.errors import TimeoutExpired

_LIMIT = 256
_STEP_S = 0.5


class _Sink:
    """Counts, hashes and writes messages as the options request."""

    def __init__(
        self, progress: Progress, digest: Digest | None, write: Any, target: BinaryIO | None
    ) -> None:
        self._progress = progress
        self._digest = digest
        self._write = write
        self._target = target
        self.sessions: dict[int, int] = {}
        self.images_seen = 0

    def take(self, message: memoryview, header: Header) -> None:
        if self._digest is not None:
            self._digest.add(message)
        if self._write is not None:
            self._write(message)
        self.sessions[header.session_id] = header.position
        self._progress.add(1, len(message))

    def flush(self) -> None:
        if self._target is not None:
            self._target.flush()

    def image(self, _image: Image) -> None:
        self.images_seen += 1


@click.command("sub", short_help="Write what is received, or count and hash it.")
@click.argument("channel")
@click.argument("stream", type=STREAM_ID)
@click.option("--length-prefixed", is_flag=True, help="Write records: u32 LE length, bytes.")
@click.option("--output", type=click.File("wb"), metavar="FILE",
              help="Write to this file, not to stdout.")
@click.option("--count", type=parse_count, metavar="COUNT", help="End after this many messages.")
@click.option("--until-end", is_flag=True, help="End when all publishers that came have gone.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True),
              help="Fail when nothing comes for so many seconds.  Default: wait on.")
@click.option("--sha256", is_flag=True,
              help="Print the SHA-256 of all messages, each with its u32 LE length in front.")
@json_option
@directory_option
@connect_option
@reattach_option
def command(
    channel: str,
    stream: int,
    length_prefixed: bool,
    output: BinaryIO | None,
    count: int | None,
    until_end: bool,
    timeout_s: float | None,
    sha256: bool,
    as_json: bool,
    directory: str | None,
    connect_s: float,
    reattach_s: float,
) -> None:
    """Subscribe to STREAM on CHANNEL and write each message as a line, or as a record.

    With --sha256 or --json the command prints only the result; add --output to write the messages
    to a file too. On a terminal, bytes that are not printable text are escaped.
    """
    digest = Digest() if sha256 else None
    target = output
    if target is None and not (sha256 or as_json):
        target = sys.stdout.buffer
    to_person = target is not None and target is not output and sys.stdout.isatty()
    if to_person and length_prefixed:
        raise click.UsageError(
            "--length-prefixed writes binary data: give --output FILE, or send the output to a pipe"
        )
    write = None
    if target is not None:
        write = (
            terminal_writer(target, sys.stdout.encoding) if to_person
            else writer(target, length_prefixed=length_prefixed)
        )
    with ExitStack() as stack:
        client = stack.enter_context(
            connected(directory, "penstock sub", connect_s, reattach_s)
        )
        progress = stack.enter_context(
            Progress("received", total=count, enabled=not (to_person or as_json))
        )
        sink = _Sink(progress, digest, write, target)
        subscription = stack.enter_context(
            client.add_subscription(channel, stream, on_available=sink.image)
        )
        interrupted = _receive(subscription, sink, progress, count, until_end, timeout_s)
    result = {
        **progress.summary(),
        "sessions": [
            {"session_id": session, "position": position}
            for session, position in sink.sessions.items()
        ],
    }
    if digest is not None:
        result["sha256"] = digest.hexdigest()
    if as_json:
        print_json(result)
    elif digest is not None:
        click.echo(digest.hexdigest())
    if interrupted:
        raise KeyboardInterrupt


def _receive(
    subscription: Subscription,
    sink: _Sink,
    progress: Progress,
    count: int | None,
    until_end: bool,
    timeout_s: float | None,
) -> bool:
    """Poll to the requested end. True: Ctrl-C ended the loop."""
    last = time.monotonic()
    try:
        while count is None or progress.messages < count:
            left = _LIMIT if count is None else min(_LIMIT, count - progress.messages)
            if subscription.poll(sink.take, left):
                last = time.monotonic()
                continue
            sink.flush()
            if until_end and sink.images_seen and not subscription.images:
                return False
            if timeout_s is not None and time.monotonic() - last >= timeout_s:
                raise TimeoutExpired(
                    f"no message on {subscription.channel} for {timeout_s:g} s "
                    f"after message {progress.messages}"
                )
            step = _STEP_S if timeout_s is None else min(_STEP_S, timeout_s)
            subscription.wait(step)
    except KeyboardInterrupt:
        return True
    finally:
        sink.flush()
    return False
