# SPDX-License-Identifier: Apache-2.0
"""Congestion controls in Python in virtual time: the class of the daemon, the same conductor."""

from __future__ import annotations

import runpy
import sys
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import pytest
from support.seeds import classes_of

from penstock.core.congestion import CongestionView
from penstock.core.driver_types import Cause
from penstock.sim.core import Link
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    HostScript,
    PublisherScript,
    Scenario,
    SubscriberScript,
)
from penstock.sim.world import World

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CHANNEL = "aeron:udp?endpoint=10.0.0.2:40456"
MTU = 1408
WINDOW = 20 * MTU
RECEIVER_WINDOW = 512 * 1024


class Fixed:
    """Twenty datagrams."""

    seen: ClassVar[list[tuple[int, CongestionView]]] = []

    def on_interval(self, view: CongestionView, now_ns: int) -> int:
        self.seen.append((now_ns, view))
        return WINDOW


class Zero:
    def on_interval(self, view: CongestionView, now_ns: int) -> int:
        return 0


class Infinite:
    def on_interval(self, view: CongestionView, now_ns: int) -> int:
        return 2**63 - 1


class AnswersOnce:
    """Then it raises."""

    def __init__(self) -> None:
        self._calls = 0

    def on_interval(self, view: CongestionView, now_ns: int) -> int:
        self._calls += 1
        if self._calls > 1:
            raise ValueError("no more")
        return WINDOW


def name_of(found: type) -> str:
    sys.modules["windows_under_test"] = sys.modules[__name__]
    return f"py:windows_under_test:{found.__name__}"


def scenario(cc: str, *, rtt_ms: int = 40, delay_ms: int = 0, link: Link | None = None) -> Scenario:
    return Scenario(
        name="windows", hosts=2,
        link=link or Link(delay_ns=rtt_ms * MS_NS // 2),
        machines=(HostScript(host=1, strategy_delay_ns=delay_ms * MS_NS),),
        publishers=(PublisherScript(
            host=0, channel=f"{CHANNEL}|term-length=4m", count=1_000_000,
            size_low=1344, size_high=1344,
        ),),
        subscribers=(SubscriberScript(
            host=1, channel=f"{CHANNEL}|rcv-wnd={RECEIVER_WINDOW}{cc}",
        ),),
        limit_ns=60 * SECOND_NS,
    )


def read_bytes(world: World) -> int:
    return world.subscribers[0].reader(world.publishers[0].ledgers[-1]).bytes


def cause(world: World) -> int:
    """What holds the publication now."""
    host = world.hosts[0]
    (publication,) = host.publications()
    return int(host._shared.read_pressure(publication.slot).cause)


def flow(world: World, from_ns: int, until_ns: int) -> float:
    """Bytes a round trip of 40 ms."""
    world.run_until(from_ns)
    before = read_bytes(world)
    world.run_until(until_ns)
    return (read_bytes(world) - before) * 40 * MS_NS / (until_ns - from_ns)


@pytest.mark.parametrize(("found", "window"), [
    (Fixed, WINDOW), (Zero, 2 * MTU), (Infinite, RECEIVER_WINDOW),
])
def test_the_window_of_the_class_is_what_is_in_flight(found: type, window: int) -> None:
    with World(scenario(f"|cc={name_of(found)}"), seed=1) as world:
        rate = flow(world, 2 * SECOND_NS, 6 * SECOND_NS)
        (view,) = world.hosts[1].images()
        assert view.congestion_window == window
        assert 0.75 * window <= rate <= 1.02 * window


@pytest.mark.parametrize(("rtt_ms", "interval_ms"), [(2, 10), (40, 40), (250, 250)])
def test_the_class_is_asked_once_a_round_trip(rtt_ms: int, interval_ms: int) -> None:
    Fixed.seen.clear()
    with World(scenario(f"|cc={name_of(Fixed)}", rtt_ms=rtt_ms), seed=1) as world:
        world.run_until(4 * SECOND_NS)
    late = [at_ns for at_ns, view in Fixed.seen if at_ns > 2 * SECOND_NS]
    steps = [after - before for before, after in pairwise(late)]
    assert all(interval_ms * MS_NS <= step <= 1.1 * interval_ms * MS_NS for step in steps)
    view = Fixed.seen[-1][1]
    assert rtt_ms * MS_NS <= view.least_rtt_ns <= view.rtt_ns <= 1.1 * rtt_ms * MS_NS
    assert (view.least, view.most, view.mtu, view.window) == (2 * MTU, RECEIVER_WINDOW, MTU, WINDOW)
    assert view.consumed <= view.received <= view.granted
    assert view.received - view.consumed <= WINDOW
    assert view.losses == view.missing == 0


def test_a_class_that_falls_silent_holds_its_window_for_five_seconds_then_static_applies() -> None:
    """The cause that the publisher sees changes with it."""
    with World(scenario(f"|cc={name_of(AnswersOnce)}"), seed=1) as world:
        rate = flow(world, SECOND_NS, 4 * SECOND_NS)
        assert 0.75 * WINDOW <= rate <= 1.02 * WINDOW
        assert cause(world) == Cause.CONGESTION_WINDOW
        rate = flow(world, 7 * SECOND_NS, 9 * SECOND_NS)
        assert 0.7 * RECEIVER_WINDOW <= rate <= 1.02 * RECEIVER_WINDOW
        assert cause(world) == Cause.RECEIVER_WINDOW
        host = world.hosts[1]
        assert [name for _, name, _ in host.events].count("congestion_silent") == 1
        told = [record.text for record in host._cnc.errors()]
        assert sum("raised ValueError('no more'); the last window holds" in t for t in told) == 1
        assert sum("no answer for 5 s; only the receiver window" in t for t in told) == 1


def test_a_class_that_answers_late_is_used_and_one_that_comes_back_is_told() -> None:
    with World(scenario(f"|cc={name_of(Fixed)}", delay_ms=300), seed=1) as world:
        assert 0.75 * WINDOW <= flow(world, 2 * SECOND_NS, 5 * SECOND_NS) <= 1.02 * WINDOW
        told = [record.text for record in world.hosts[1]._cnc.errors()]
        assert sum("no answer within 20 ms" in text for text in told) == 1
    with World(scenario(f"|cc={name_of(Fixed)}", delay_ms=8000), seed=1) as world:
        first = flow(world, 2 * SECOND_NS, 5 * SECOND_NS)
        assert 0.75 * 10 * MTU <= first <= 1.02 * 10 * MTU      # its first window
        assert flow(world, 6500 * MS_NS, 7500 * MS_NS) > 0.7 * RECEIVER_WINDOW
        assert 0.75 * WINDOW <= flow(world, 9 * SECOND_NS, 10 * SECOND_NS) <= 1.02 * WINDOW
        names = [name for _, name, _ in world.hosts[1].events]
        assert names.count("congestion_silent") == names.count("congestion_answers") == 1


def test_the_window_is_paced_and_repeatable() -> None:
    link = Link(delay_ns=20 * MS_NS, bandwidth_bytes_per_s=5_000_000, queue_bytes=8 * MTU)
    runs = []
    for _ in range(2):
        with World(scenario(f"|cc={name_of(Fixed)}", link=link), seed=3) as world:
            world.run_until(SECOND_NS)          # the round trip is measured by then
            before = world.network.statistics().queue_full
            world.run_until(4 * SECOND_NS)
            runs.append((read_bytes(world), world.network.statistics().queue_full - before))
    assert runs[0] == runs[1]
    assert runs[0][1] == 0                  # twenty datagrams at once would not fit the queue


def test_the_example_keeps_the_queue_short(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / "delay_target.py"), run_name="__main__")
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    cubic, mine = ({"link": int(words[1][:-1]), "rtt": int(words[-2])} for words in said)
    assert cubic["link"] >= 90
    assert cubic["rtt"] >= 150
    assert mine["link"] >= 90
    assert mine["rtt"] <= 65


def test_many_seeds_have_a_class() -> None:
    found = [name for seed in range(1, 301) for name in classes_of(seed)]
    assert found.count("cc=py") >= 15
