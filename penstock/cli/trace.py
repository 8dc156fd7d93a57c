# SPDX-License-Identifier: Apache-2.0
"""``penstock trace``: print the events of traces as lines of text, with a summary of each stall."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import attrs
import click

from penstock.cli._records import printable

_SAMPLES: Final = ("sample", "world")
_TRIGGERED: Final = "pressure_triggered"
_RELIEVED: Final = "pressure_relieved"
_WALL_NS: Final = 10**17                # a clock above this is the wall clock
_MOST_TEXT: Final = 200

Event = Mapping[str, Any]


@click.command("trace", short_help="Print traces, one line for each event.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...",
                type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--show-backpressure", "stalls", is_flag=True,
              help="Say for each stall what triggered it, how long publishers were held, and how "
              "many messages drained.")
@click.option("--samples", is_flag=True, help="Print the samples too.")
def command(files: tuple[Path, ...], stalls: bool, samples: bool) -> None:
    """Print traces of 'penstock daemon --trace' or 'penstock sim run --trace'. The events of
    several traces are merged by time."""
    told = Stalls() if stalls else None
    for event in heapq.merge(*map(events, files), key=itemgetter("t")):
        name = event["event"]
        text = told.line(event) if told is not None else None
        if text is not None:
            click.echo(f"{_time(event['t'])} {_host(event)} {text}")
        elif samples or name not in _SAMPLES:
            click.echo(f"{_time(event['t'])} {_host(event)} {name} {_fields(event)}".rstrip())
    if told is not None:
        for text in told.end():
            click.echo(text)


def events(path: Path) -> Iterator[Event]:
    """Return the events of a trace.

    :raises click.ClickException: a line of the file is not an event.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return                  # its daemon is writing it
            try:
                event = json.loads(line)
                known = isinstance(event["t"], int) and isinstance(event["fields"], dict)
            except (ValueError, KeyError, TypeError):
                known = False
            if not known:
                raise click.ClickException(f"{path}: line {number} is not an event of a trace")
            yield event


@attrs.define
class Stalls:
    """Finds out from the events of a trace which publishers were blocked, and when."""

    _running: dict[tuple[Any, Any], Event] = attrs.field(factory=dict)
    _ended: int = 0
    _held_ns: int = 0

    def line(self, event: Event) -> str | None:
        """If the event states that a publisher became blocked or can continue, return a line about
        it. For every other event, return None.
        """
        fields, key = event["fields"], (event["host"], event["fields"].get("publication_id"))
        if event["event"] == _TRIGGERED:
            self._running[key] = event
            return f"+ {_stream(fields)} is held by {_cause(fields)}, {_bytes(fields)} behind"
        if event["event"] != _RELIEVED:
            return None
        self._running.pop(key, None)
        self._ended += 1
        held_ns = fields.get("duration_ns") or 0
        self._held_ns += held_ns
        drained = fields.get("drained_messages")
        return (
            f"- {_stream(fields)} continues: held for {held_ns / 1e9:.6f} s by {_cause(fields)}; "
            f"{'messages' if drained is None else f'{drained:,} messages'} drained, at most "
            f"{fields.get('peak_bytes') or 0:,} bytes behind{_repeats(fields)}"
        )

    def end(self) -> Iterable[str]:
        """Return the lines of the summary that the command prints after the last event."""
        yield f"{self._ended:,} stalls ended; publishers were held for {self._held_ns / 1e9:.6f} s"
        for event in self._running.values():
            fields = event["fields"]
            yield (f"{_stream(fields)} has been held since {_time(event['t'])} by "
                   f"{_cause(fields)}")


def _stream(fields: Mapping[str, Any]) -> str:
    return f"stream {fields.get('stream_id')} session {fields.get('session_id')}"


def _cause(fields: Mapping[str, Any]) -> str:
    culprit = _clean(fields.get("culprit") or "")
    cause = str(fields.get("cause")).replace("_", " ")
    return f"{cause}: {culprit}" if culprit else cause


def _bytes(fields: Mapping[str, Any]) -> str:
    return f"{fields.get('depth_bytes') or 0:,} bytes"


def _repeats(fields: Mapping[str, Any]) -> str:
    """Return the number of stalls that this one stands for, if there are more."""
    count = fields.get("episodes") or 1
    return f" (the last of {count:,} stalls since the last report)" if count > 1 else ""


def _time(at_ns: int) -> str:
    """Return the wall clock in UTC, or the seconds of a simulated clock."""
    if at_ns < _WALL_NS:
        return f"{at_ns / 1e9:.6f}"
    moment = datetime.fromtimestamp(at_ns // 10**9, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at_ns % 10**9 // 1000:06d}Z"


def _host(event: Event) -> str:
    return _clean(event.get("host") or "-")


def _fields(event: Event) -> str:
    return " ".join(f"{_clean(name)}={_clean(value)}" for name, value in event["fields"].items())


def _clean(value: Any) -> str:
    text = printable(str(value).encode())
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}..."
