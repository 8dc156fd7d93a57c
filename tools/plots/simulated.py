# SPDX-License-Identifier: Apache-2.0
"""Plots of docs/congestion-control.md and docs/flow-control.md, from scenarios of the simulator.

    python tools/plots/simulated.py OUT_DIR
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
from style import BLUE, COLOURS, GREY, NAVY, RED, YELLOW, plt, save

from penstock.sim import files, library
from penstock.sim.core import Link
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    Budget,
    Drop,
    HostScript,
    PublisherScript,
    Scenario,
    SubscriberScript,
)
from penstock.sim.world import World

PACKET = 320
MESSAGE = 288
STEP_NS = 250 * MS_NS


def _scenario(name: str) -> Scenario:
    return attrs.evolve(files.load(library.path_of(name)), budget=Budget())


# ---- congestion control --------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Check:
    """At one stream, at one moment."""

    at_s: float
    window: float               # packets
    rtt_ms: float
    goodput: float              # bytes a second since the moment before


def check(name: str, until_s: float) -> dict[int, list[Check]]:
    """By stream."""
    found: dict[int, list[Check]] = {}
    scenario = _scenario(name)
    endless = tuple(attrs.evolve(p, count=3_000_000) for p in scenario.publishers)
    with World(attrs.evolve(scenario, publishers=endless), 1) as world:
        before: dict[int, int] = {}
        for now_ns in range(STEP_NS, int(until_s * SECOND_NS) + 1, STEP_NS):
            world.run_until(now_ns)
            paths = {view.stream_id: view for view in world.hosts[1].images()}
            for publisher, subscriber in zip(world.publishers, world.subscribers, strict=True):
                stream = publisher.script.stream_id
                if stream not in paths or not publisher.ledgers:
                    continue
                total = subscriber.reader(publisher.ledgers[-1]).bytes
                found.setdefault(stream, []).append(
                    Check(
                        at_s=now_ns / SECOND_NS,
                        window=paths[stream].congestion_window / PACKET,
                        rtt_ms=paths[stream].rtt_ns / MS_NS,
                        goodput=(total - before.get(stream, 0)) * SECOND_NS / STEP_NS,
                    )
                )
                before[stream] = total
    return found


def fat_path(path: Path) -> None:
    """One flow on 10 000 packets."""
    (rows,) = check("cubic-fat-path", 60).values()
    figure, (above, middle, below) = plt.subplots(3, 1, figsize=(8, 6), sharex=True)
    at = [row.at_s for row in rows]
    above.plot(at, [row.window for row in rows], color=BLUE)
    above.axhline(10_000, color=GREY, linestyle=":", linewidth=1)
    above.text(at[-1], 9_400, "bandwidth × delay", ha="right", va="top", color=GREY)
    above.set_ylabel("window\n(packets)")
    above.set_ylim(0)
    middle.plot(at, [row.goodput / MESSAGE / 1000 for row in rows], color=BLUE)
    middle.axhline(40, color=GREY, linestyle=":", linewidth=1)
    middle.text(at[-1] * 0.9, 38, "the link", ha="right", va="top", color=GREY)
    middle.set_ylabel("delivered\n(1000 messages/s)")
    middle.set_ylim(0, 50)
    below.plot(at, [row.rtt_ms for row in rows], color=RED)
    below.axhline(250, color=GREY, linestyle=":", linewidth=1)
    below.text(at[-1], 240, "empty path", ha="right", va="top", color=GREY)
    below.set_ylabel("round trip\n(ms)")
    below.set_ylim(0, 500)
    below.set_xlabel("seconds")
    below.set_xlim(0)
    save(figure, path)


def shared_path(path: Path) -> None:
    """Four flows that begin two seconds apart."""
    figure, axes = plt.subplots(figsize=(8, 3.5))
    for number, (colour, rows) in enumerate(
        zip(COLOURS, check("cubic-shared-path", 60).values(), strict=True)
    ):
        axes.plot([row.at_s for row in rows], [row.window for row in rows], color=colour,
                  label=f"stream {number + 1}", linewidth=1.3)
    axes.axhline(100, color=GREY, linestyle=":", linewidth=1.2, label="bandwidth × delay ÷ 4")
    axes.set_xlabel("seconds")
    axes.set_xlim(0, 60)
    axes.set_ylabel("congestion window (packets)")
    axes.set_ylim(0, 520)
    axes.legend(ncols=3, loc="upper right")
    save(figure, path)


def expected_packets(rtt_s: float, loss: float) -> float:
    """RFC 9438, section 5.1 and its table 2; below, Reno's."""
    return max(1.054 * rtt_s**0.75 / loss**0.75, 0.98 * math.sqrt(1.5 / loss))


def measured_packets(rtt_ms: int, every: int) -> float:
    """Delivered in a round trip, with each so-many-th datagram lost."""
    scenario = _scenario(f"cubic-response-{rtt_ms}ms")
    rounds = 1000
    warm_ns = 300 * rtt_ms * MS_NS
    # Begins at the function's maximum, as the scenario does.
    part = expected_packets(rtt_ms / 1000, 1 / every) / expected_packets(rtt_ms / 1000, 1e-4)
    first = round(scenario.drops[0].numbers[0] * part)
    lost = Drop(sender=0, receiver=1, numbers=tuple(range(first, 3_000_000, every)[:20_000]))
    endless = (attrs.evolve(scenario.publishers[0], count=3_000_000),)
    with World(attrs.evolve(scenario, drops=(lost,), publishers=endless), 1) as world:
        world.run_until(warm_ns)
        (subscriber,), (publisher,) = world.subscribers, world.publishers
        before = subscriber.reader(publisher.ledgers[-1]).bytes
        world.run_until(warm_ns + rounds * rtt_ms * MS_NS)
        after = subscriber.reader(publisher.ledgers[-1]).bytes
    return (after - before) / MESSAGE / rounds


def response(path: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 4))
    for colour, rtt_ms in zip((BLUE, RED, YELLOW), (10, 100, 250), strict=True):
        losses = [1 / every for every in (100, 300, 1000, 3000, 10_000)]
        axes.loglog(losses, [expected_packets(rtt_ms / 1000, loss) for loss in losses],
                    color=colour, linewidth=1)
        found = [measured_packets(rtt_ms, round(1 / loss)) for loss in losses]
        axes.loglog(losses, found, "o", color=colour, label=f"{rtt_ms} ms")
        print(f"{rtt_ms} ms: {found[-1]:.1f} packets a round trip at 1e-4, "
              f"RFC 9438: {expected_packets(rtt_ms / 1000, 1e-4):.1f}")
    axes.set_xlabel("loss probability")
    axes.set_ylabel("packets a round trip")
    axes.legend(title="round trip (lines: RFC 9438)")
    save(figure, path)


# ---- a receiver dies -----------------------------------------------------------------------------

GROUP = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24"
BIN_NS = 100 * MS_NS
DIES_S = 3


def dying(strategy: str, *, dies: bool) -> Scenario:
    """1 MB/s to three receivers, of which the machine of one dies, or does not."""
    return Scenario(
        name="dying",
        hosts=4,
        link=Link(delay_ns=MS_NS),
        machines=(HostScript(host=3, crash_ns=DIES_S * SECOND_NS if dies else None),),
        publishers=(
            PublisherScript(
                host=0, channel=f"{GROUP}|term-length=256k|fc={strategy}", count=12_000,
                size_low=1000, size_high=1000, interval_ns=MS_NS, start_ns=SECOND_NS // 2,
            ),
        ),
        subscribers=tuple(
            SubscriberScript(host=host, channel=GROUP, may_join_late=True) for host in (1, 2, 3)
        ),
    )


def living(scenario: Scenario, until_s: int) -> Iterator[tuple[float, float]]:
    """Time and MB/s of a receiver that goes on living."""
    with World(scenario, 1) as world:
        (publisher,), last = world.publishers, 0
        for now_ns in range(BIN_NS, until_s * SECOND_NS + 1, BIN_NS):
            world.run_until(now_ns)
            got = world.subscribers[0].reader(publisher.ledgers[-1]).bytes
            yield (now_ns - BIN_NS / 2) / SECOND_NS, (got - last) * SECOND_NS / BIN_NS / 1e6
            last = got


def dying_receiver(path: Path) -> None:
    figure, axes = plt.subplots(3, 1, figsize=(8, 5), sharex=True, sharey=True)
    for axis, (strategy, title) in zip(
        axes,
        (("min", "fc=min: all wait for 5 s"), ("min,t:2s", "fc=min,t:2s: for 2 s"),
         ("nak", "fc=nak: nobody notices")),
        strict=True,
    ):
        control = list(living(dying(strategy, dies=False), 11))
        killed = list(living(dying(strategy, dies=True), 11))
        axis.fill_between(*zip(*control, strict=True), step="mid", color=GREY, alpha=0.35,
                          linewidth=0, label="nobody dies")
        axis.step(*zip(*killed, strict=True), where="mid", color=NAVY, linewidth=1.6,
                  label="one of three dies")
        axis.axvline(DIES_S, color=RED, linestyle=":", linewidth=1)
        axis.set_title(title, loc="left", fontweight="bold")
        axis.set_ylabel("MB/s")
        axis.set_ylim(0, 2.4)
        least = min(rate for at, rate in killed if at > 1)
        print(f"{strategy}: worst bin {100 * least:.0f} % of 1 MB/s")
    axes[0].text(DIES_S - 0.08, 2.3, "dies", color=RED, va="top", ha="right")
    axes[0].legend(loc="upper right", ncols=2)
    axes[-1].set_xlabel("seconds; what a surviving receiver takes, in bins of 100 ms")
    axes[-1].set_xlim(0, 11)
    save(figure, path)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    out = Path(arguments[0])
    out.mkdir(parents=True, exist_ok=True)
    fat_path(out / "cubic-fat-path.svg")
    shared_path(out / "cubic-shared-path.svg")
    response(out / "cubic-response.svg")
    dying_receiver(out / "dying-receiver.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
