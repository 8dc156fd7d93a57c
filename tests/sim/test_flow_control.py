# SPDX-License-Identifier: Apache-2.0
"""Strategies in virtual time, in bins: who waits for whom when a receiver dies, pauses or is slow.
The same production code, conductor and strategy classes as in the daemon."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

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

GROUP = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24"
BIN_NS = 50 * MS_NS
RATE = 1000                             # messages of 1000 bytes in a second, a bin has 50


def scenario(
    fc: str, *, receivers: int = 3, changed: Callable[[SubscriberScript], SubscriberScript],
    machines: tuple[HostScript, ...] = (), seconds: int = 12, interval_ns: int = MS_NS,
    term: str = "256k",
) -> Scenario:
    """A group of receivers, the last of which is changed."""
    subscribers = [
        SubscriberScript(host=host, channel=GROUP, may_join_late=True, may_miss=True)
        for host in range(1, 1 + receivers)
    ]
    subscribers[-1] = changed(subscribers[-1])
    return Scenario(
        name="strategy",
        hosts=1 + receivers,
        link=Link(delay_ns=MS_NS),
        machines=machines,
        publishers=(
            PublisherScript(
                host=0, channel=f"{GROUP}|term-length={term}|fc={fc}",
                count=seconds * SECOND_NS // interval_ns, size_low=1000, size_high=1000,
                start_ns=SECOND_NS, interval_ns=interval_ns,
            ),
        ),
        subscribers=tuple(subscribers),
        limit_ns=60 * SECOND_NS,
    )


def bins(what: Scenario, seconds: float, *, from_s: float = 2.0) -> list[int]:
    """Bytes sent in each bin."""
    found = []
    with World(what, seed=1) as world:
        publisher = world.publishers[0]
        at_ns = int(from_s * SECOND_NS)
        world.run_until(at_ns)
        last = publisher.sent_bytes
        for _ in range(int(seconds * SECOND_NS) // BIN_NS):
            at_ns += BIN_NS
            world.run_until(at_ns)
            found.append(publisher.sent_bytes - last)
            last = publisher.sent_bytes
    return found


def dies(script: SubscriberScript) -> SubscriberScript:
    return script


def pauses(script: SubscriberScript) -> SubscriberScript:
    return attrs.evolve(script, pauses=((4 * SECOND_NS, 8 * SECOND_NS),))


CRASH = (HostScript(host=3, crash_ns=4 * SECOND_NS),)


def test_under_min_a_dying_receiver_stalls_the_others_until_the_timeout() -> None:
    found = bins(scenario("min,t:2s", changed=dies, machines=CRASH), 7)
    stalled = [i for i, sent in enumerate(found) if sent == 0]
    assert stalled, "nothing waited for the dead receiver"
    assert 30 <= len(stalled) <= 42                 # 2 s in bins of 50 ms, less the open window
    assert stalled == list(range(stalled[0], stalled[0] + len(stalled)))
    assert found[-1] >= 45 * 1000                   # and then they go on


@pytest.mark.parametrize("fc", ["nak", "max"])
def test_under_nak_a_dying_receiver_changes_nothing(fc: str) -> None:
    found = bins(scenario(fc, changed=dies, machines=CRASH), 7)
    before = sorted(found[10:35])[12]
    assert before >= 48 * 1000
    assert min(found) >= before * 95 // 100


def test_under_nak_a_pausing_receiver_stalls_nobody() -> None:
    found = bins(scenario("nak", changed=pauses), 7)
    before = sorted(found[10:35])[12]
    assert min(found) >= before * 95 // 100


def test_under_min_a_pausing_receiver_is_waited_for() -> None:
    found = bins(scenario("min", changed=pauses), 7)
    assert sum(1 for sent in found if sent == 0) >= 60      # 4 s, less the windows


def test_preferred_waits_for_the_tagged_only() -> None:
    tagged = (HostScript(host=1, group_tag=5), HostScript(host=2, group_tag=5))
    found = bins(scenario("preferred,g:5", changed=pauses, machines=tagged), 7)
    assert min(found) >= 45 * 1000
    all_tagged = (*tagged, HostScript(host=3, group_tag=5))
    found = bins(scenario("tagged,g:5", changed=pauses, machines=all_tagged), 7)
    assert sum(1 for sent in found if sent == 0) >= 60


def ext_frames(what: Scenario, until_s: float) -> int:
    with World(what, seed=1) as world:
        world.run_until(int(until_s * SECOND_NS))
        publisher = world.publishers[0]
        assert publisher.sent_bytes > 0
        host = world.hosts[0]
        return sum(
            host.driver.publication_status(publication.id).pressure_signals
            for publication in host.publications()
        )


def test_silence_while_every_queue_is_below_its_lowest_threshold() -> None:
    assert ext_frames(scenario("nak", changed=dies), 6) == 0


def slow(script: SubscriberScript) -> SubscriberScript:
    """20 messages each 50 ms: 400 a second of the 1000 that are sent."""
    return attrs.evolve(script, poll_limit=20, interval_ns=50 * MS_NS)


def test_one_slow_of_many_signals_and_sets_the_pace_under_nak() -> None:
    what = scenario("nak", changed=slow, seconds=20)
    assert ext_frames(what, 12) > 0
    found = bins(what, 10, from_s=6)
    mean = sum(found) // len(found) * 20            # bytes a second
    assert 300 * 1000 <= mean <= 700 * 1000
    assert max(found[:1] + found) > 0


def test_a_strategy_in_python_runs_in_the_simulator() -> None:
    found = bins(scenario("py:demo.half_window:HalfWindow", changed=pauses), 7)
    assert sum(1 for sent in found if sent == 0) >= 55      # it follows the slowest, too
    assert found[-1] >= 0


@pytest.mark.parametrize("fc", ["min", "nak", "py:demo.half_window:HalfWindow"])
def test_runs_are_repeatable(fc: str) -> None:
    what = scenario(fc, changed=slow, seconds=2)
    assert bins(what, 2) == bins(what, 2)


# ---- strategies in Python that are late ----------------------------------------------------------

LATE_MS = {"in time": 5, "late": 30, "very late": 300, "without an answer for 3 s": 3000}


def missed_behind(strategy: str, delay_ms: int, *, seconds: int = 4) -> tuple[int, int]:
    """Messages that receivers missed behind a strategy that answers late, and what was sent."""
    what = scenario(
        f"py:penstock.sim.strategies:{strategy}", changed=slow, seconds=seconds, term="64k",
        machines=(HostScript(host=0, strategy_delay_ns=delay_ms * MS_NS),),
    )
    with World(what, seed=1) as world:
        world.run_until((seconds + 1) * SECOND_NS)
        ledger = world.publishers[0].ledgers[-1]
        missed = sum(reader.reader(ledger).missed for reader in world.subscribers)
        return missed, world.publishers[0].sent


@pytest.mark.parametrize("delay_ms", LATE_MS.values(), ids=LATE_MS)
@pytest.mark.parametrize("strategy", ["Slowest", "SlowestElseMin"])
def test_a_late_strategy_lets_nobody_miss_anything(strategy: str, delay_ms: int) -> None:
    """The default is hold: the last limit, moved on with the slowest receiver."""
    missed, sent = missed_behind(strategy, delay_ms)
    assert missed == 0
    assert sent >= 800                              # as many as in time, and the windows


def test_a_late_strategy_may_choose_max() -> None:
    _, sent = missed_behind("SlowestElseMax", 3000)
    assert sent > 3000


def test_a_strategy_without_an_answer_is_given_up_after_five_seconds_and_named() -> None:
    what = scenario(
        "py:penstock.sim.strategies:Slowest", changed=slow, seconds=10,
        machines=(HostScript(host=0, strategy_delay_ns=9 * SECOND_NS),),
    )
    with World(what, seed=1) as world:
        host, publisher = world.hosts[0], world.publishers[0]
        world.run_until(4 * SECOND_NS)
        held = publisher.sent
        assert held < 2200
        world.run_until(7 * SECOND_NS)
        assert publisher.sent > held + 1200         # max
        notified = [at_ns for at_ns, name, _ in host.events if name == "strategy_silent"]
        assert len(notified) == 1
        assert any("no answer for 5 s" in record.text for record in host._cnc.errors())
        world.run_until(11 * SECOND_NS)
        assert [name for _, name, _ in host.events if name == "strategy_answers"] != []
