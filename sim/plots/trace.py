# SPDX-License-Identifier: Apache-2.0
"""Pictures of traces of the daemon (``penstock daemon --trace``) and of the simulator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import attrs

from penstock.core.errors import InvalidArgument
from penstock.sim.plots.run import per_second, pyplot, save

_INCHES: Final = (10.0, 11.0)
_KIB: Final = 1024
#: Counters in the last panel.
_REPAIRS: Final = {
    "naks_sent": "NAKs sent", "retransmits_sent": "sent again", "under_runs": "received again",
    "back_pressure_events": "met a receiver's window",
}


@attrs.define
class Series:
    """A curve of a plot: times and values, in two lists of the same length."""

    times: list[float] = attrs.Factory(list)        # seconds
    values: list[dict[str, Any]] = attrs.Factory(list)

    def column(self, of: Callable[[dict[str, Any]], float]) -> list[float]:
        return [of(value) for value in self.values]


@attrs.define
class Picture:
    """The curves of a picture, made from the samples in one or several traces."""

    publications: dict[str, Series] = attrs.Factory(dict)
    images: dict[str, Series] = attrs.Factory(dict)
    counters: dict[str, Series] = attrs.Factory(dict)   # by host
    holes: list[float] = attrs.Factory(list)            # where events are missing
    begin_ns: int = 0


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Return the events of a trace file.

    :raises InvalidArgument: the file cannot be read, or a line is no event.
    """
    try:
        with path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                try:
                    event = json.loads(text)
                    if not {"t", "host", "event", "fields"} <= set(event):
                        raise ValueError
                except (ValueError, TypeError):
                    raise InvalidArgument(f"{path}:{number}: this line is not an event") from None
                yield event
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise InvalidArgument(f"{path}: {reason}: name the file of a trace") from None


def collect(paths: Sequence[Path]) -> Picture:
    """Align traces by their clocks.

    :raises InvalidArgument: the events contain no samples.
    """
    events = [event for path in paths for event in read(path)]
    picture = Picture(begin_ns=min((event["t"] for event in events), default=0))
    for event in sorted(events, key=lambda event: event["t"]):
        at_s = (event["t"] - picture.begin_ns) / 1e9
        if event["event"] == "sample":
            _take(picture, at_s, str(event["host"]), event["fields"])
        elif event["event"] == "trace_dropped":
            picture.holes.append(at_s)
    if not picture.counters:
        raise InvalidArgument(f"{', '.join(map(str, paths))}: no samples to draw")
    return picture


def _take(picture: Picture, at_s: float, host: str, fields: Mapping[str, Any]) -> None:
    def add(table: dict[str, Series], name: str, row: dict[str, Any]) -> None:
        series = table.setdefault(name, Series())
        series.times.append(at_s)
        series.values.append(row)

    for row in fields["publications"]:
        name = f"{host} publishes {row['stream_id']} ({row['session_id']})"
        add(picture.publications, name, row)
    for row in fields["images"]:
        add(picture.images, f"{host} receives {row['stream_id']} ({row['session_id']})", row)
    add(picture.counters, host, fields["counters"])


def plot(paths: Sequence[Path], output: Path) -> None:
    """Write one picture to ``path``, whose suffix determines the format.

    :raises PenstockError: a trace cannot be read, or matplotlib is missing.
    """
    picture = collect(paths)
    draw = pyplot()
    figure, axes = draw.subplots(4, 1, sharex=True, figsize=_INCHES, constrained_layout=True)
    figure.suptitle(", ".join(path.name for path in paths))
    _rates(axes[0], picture)
    _room(axes[1], picture)
    _backlogs(axes[2], picture)
    _repairs(axes[3], picture)
    axes[-1].set_xlabel("s")
    for axis in axes:
        axis.grid(alpha=0.3)
        for at_s in picture.holes:
            axis.axvline(at_s, color="red", alpha=0.3, linestyle=":")
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize="small", loc="upper left")
    save(draw, figure, output)


def _rates(axis: Any, picture: Picture) -> None:
    for name, series in picture.publications.items():
        rates = per_second(series.times, series.column(lambda row: row["position"]))
        axis.plot(series.times, [rate * 8e-6 for rate in rates], label=name, linewidth=2)
    for name, series in picture.images.items():
        rates = per_second(series.times, series.column(lambda row: row["slowest_subscriber"]))
        axis.plot(series.times, [rate * 8e-6 for rate in rates], label=name, linewidth=1)
    axis.set_ylabel("Mbit/s")


def _room(axis: Any, picture: Picture) -> None:
    for name, series in picture.publications.items():
        room = series.column(lambda row: max(0, row["limit"] - row["position"]) / _KIB)
        axis.plot(series.times, room, label=f"room: {name}")
        blocked = per_second(series.times, series.column(lambda row: row["blocked_ns"]))
        axis.fill_between(
            series.times, 0, [min(1.0, share / 1e9) * max(room) for share in blocked], alpha=0.2,
            label="share of time it was refused",
        )
    axis.set_ylabel("KiB")


def _backlogs(axis: Any, picture: Picture) -> None:
    for name, series in picture.publications.items():
        behind = series.column(lambda row: (row["position"] - row["consumed"]) / _KIB)
        axis.plot(series.times, behind, label=f"not consumed: {name}")
    for name, series in picture.images.items():
        behind = series.column(
            lambda row: max(0, row["high_water"] - row["slowest_subscriber"]) / _KIB
        )
        axis.plot(series.times, behind, label=f"not read: {name}", linewidth=1)
    axis.set_ylabel("KiB")


def _repairs(axis: Any, picture: Picture) -> None:
    for host, series in picture.counters.items():
        for key, label in _REPAIRS.items():
            values = series.column(itemgetter(key))
            if any(values):
                axis.plot(series.times, per_second(series.times, values), label=f"{host}: {label}")
    axis.set_ylabel("a second")
