# SPDX-License-Identifier: Apache-2.0
"""Plots of a recorded run: rates, windows, bytes in flight, losses and retransmits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.sim.trace import Sample
    from penstock.sim.world import World

_RATE_NS: Final = 100_000_000
_INCHES: Final = (10.0, 11.0)


def pyplot() -> Any:
    """Return matplotlib's pyplot, set up to draw into files.

    :raises PenstockError: matplotlib is missing.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise PenstockError("plots need matplotlib: pip install 'penstock[plots]'") from error
    mpl.use("agg")
    from matplotlib import pyplot as found

    return found


def save(draw: Any, figure: Any, path: Path) -> None:
    """Write ``figure`` to ``path`` and close it.

    :raises PenstockError: the file cannot be written.
    """
    try:
        # Without a date a picture changes with its content only.
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=110, metadata=metadata)
    except (OSError, ValueError) as error:
        raise PenstockError(f"{path}: cannot be written: {error}") from None
    finally:
        draw.close(figure)


def plot(world: World, path: Path) -> None:
    """Write one picture to ``path``, whose suffix determines the format.  PenstockError without
    matplotlib."""
    draw = pyplot()
    samples = world.samples
    times = [sample.now_ns / 1e9 for sample in samples]
    figure, axes = draw.subplots(4, 1, sharex=True, figsize=_INCHES, constrained_layout=True)
    figure.suptitle(f"{world.scenario.name}, seed {world.seed}")
    _rates(axes[0], world, times, samples)
    _windows(axes[1], world, times, samples)
    _backlogs(axes[2], world, times, samples)
    _repairs(axes[3], times, samples)
    axes[-1].set_xlabel("virtual time, s")
    for axis in axes:
        axis.grid(alpha=0.3)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize="small", loc="upper left")
    save(draw, figure, path)


def per_second(times: Sequence[float], values: Sequence[float]) -> list[float]:
    """For each time in ``times``, return the growth of the value in the 100 ms before this time, as
    a rate per second."""
    found = []
    first = 0
    for index, now in enumerate(times):
        while now - times[first] > _RATE_NS / 1e9:
            first += 1
        span = now - times[first]
        found.append((values[index] - values[first]) / span if span > 0 else 0.0)
    return found


def _name(world: World, subscriber: int, publisher: int) -> str:
    host = world.scenario.host_name(world.scenario.subscribers[subscriber].host)
    stream = world.scenario.publishers[publisher].stream_id
    return f"{host} receives {stream}"


def _rates(axis: Any, world: World, times: list[float], samples: Sequence[Sample]) -> None:
    for index, publisher in enumerate(world.scenario.publishers):
        rates = per_second(times, [sample.sent[index] for sample in samples])
        label = f"{world.scenario.host_name(publisher.host)} publishes {publisher.stream_id}"
        axis.plot(times, [rate * 8e-6 for rate in rates], label=label, linewidth=2)
    for index in range(len(world.scenario.subscribers)):
        for of in range(len(world.scenario.publishers)):
            values = [sample.received[index][of] for sample in samples]
            if any(sample.delivered[index][of] >= 0 for sample in samples):
                rates = [rate * 8e-6 for rate in per_second(times, values)]
                axis.plot(times, rates, label=_name(world, index, of), linewidth=1)
    axis.set_ylabel("Mbit/s")


def _windows(axis: Any, world: World, times: list[float], samples: Sequence[Sample]) -> None:
    for index, publisher in enumerate(world.scenario.publishers):
        room = [max(0, s.limits[index] - s.published[index]) / 1024 for s in samples]
        axis.plot(times, room, label=f"room to publish {publisher.stream_id}")
        blocked = per_second(times, [sample.blocked_ns[index] for sample in samples])
        axis.fill_between(
            times, 0, [share / 1e9 * max(room, default=0) for share in blocked], alpha=0.2,
            label=f"share of time {publisher.stream_id} was refused",
        )
    axis.set_ylabel("KiB")


def _backlogs(axis: Any, world: World, times: list[float], samples: Sequence[Sample]) -> None:
    for index in range(len(world.scenario.subscribers)):
        for of in range(len(world.scenario.publishers)):
            behind = [
                (s.published[of] - s.delivered[index][of]) / 1024
                if s.delivered[index][of] >= 0 else 0.0
                for s in samples
            ]
            if any(sample.delivered[index][of] >= 0 for sample in samples):
                axis.plot(times, behind, label=_name(world, index, of))
    axis.set_ylabel("KiB behind the publisher")


def _repairs(axis: Any, times: list[float], samples: Sequence[Sample]) -> None:
    axis.plot(times, per_second(times, [s.network.lost for s in samples]), label="lost")
    axis.plot(times, per_second(times, [s.wire.naks for s in samples]), label="NAKs")
    axis.plot(times, per_second(times, [s.wire.resent for s in samples]), label="sent again")
    axis.plot(times, per_second(times, [s.wire.ext for s in samples]), label="PRESSURE and such")
    full = [s.network.queue_full + s.network.buffer_full for s in samples]
    axis.plot(times, per_second(times, full), label="no room in a queue")
    axis.set_ylabel("datagrams a second")
