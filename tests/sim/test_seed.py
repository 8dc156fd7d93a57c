# SPDX-License-Identifier: Apache-2.0
"""The production core and conductor in virtual time: delivery over loss, and reproducibility."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import attrs
import pytest

from penstock.core.sim import Link
from penstock.sim.scenario import MS_NS, Scenario, multicast, two_hosts
from penstock.sim.world import World, run


def run_in_its_own_process(scenario: str, seed: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.sim", scenario, "--seed", str(seed)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


def test_two_hosts_over_a_lossy_link_deliver_every_message_in_order() -> None:
    report = run(two_hosts(count=5000), seed=1)
    assert report.violations == ()
    assert report.messages == 5000
    assert report.network.lost > 0


def test_a_lossless_link_needs_little_more_than_the_stream_itself() -> None:
    report = run(two_hosts(count=2000, loss_ppm=0), seed=1)
    assert report.violations == ()
    assert report.network.lost == 0
    sent_once = 2000 * (500 + 64)  # half of the largest size, a header and alignment each
    assert report.network.bytes_sent < 1.2 * sent_once


@pytest.mark.parametrize("seed", range(1, 6))
def test_repair_costs_little_more_than_what_was_lost(seed: int) -> None:
    """Also before the round trip is known: its measurement may be lost too."""
    with World(two_hosts(count=5000), seed) as world:
        report = world.run()
        stream = sum(len(message) + 48 for message in world.publishers[0].sent)
    assert report.violations == ()
    assert report.network.bytes_sent < 1.2 * stream


@pytest.mark.parametrize("seed", range(1, 6))
def test_multicast_receivers_repair_their_own_losses(seed: int) -> None:
    report = run(multicast(), seed)
    assert report.violations == ()


def test_reordering_is_no_loss() -> None:
    scenario = attrs.evolve(
        two_hosts(count=2000), link=Link(delay_ns=5 * MS_NS, jitter_ns=2 * MS_NS)
    )
    report = run(scenario, seed=1)
    assert report.violations == ()


def test_a_link_that_is_down_is_reported_by_the_oracle() -> None:
    scenario: Scenario = attrs.evolve(
        two_hosts(count=10), link=Link(loss_ppm=1_000_000), limit_ns=10_000 * MS_NS
    )
    report = run(scenario, seed=1)
    assert report.messages == 0
    assert len(report.violations) == 1


@pytest.mark.parametrize("scenario", ["two-hosts", "multicast"])
def test_a_seed_gives_the_same_trace_in_another_process(scenario: str) -> None:
    first = run_in_its_own_process(scenario, 1)
    again = run_in_its_own_process(scenario, 1)
    other = run_in_its_own_process(scenario, 2)
    assert first == again
    assert first["trace"] != other["trace"]


def test_a_loss_after_silence_is_seen_at_the_next_heartbeat() -> None:
    """The last message before a silence has nothing behind it that could show its loss."""
    pause_ns = 3000 * MS_NS
    script = attrs.evolve(two_hosts().publishers[0], count=2, interval_ns=pause_ns)
    scenario = attrs.evolve(two_hosts(), publishers=(script,), link=Link(delay_ns=MS_NS))
    with World(scenario, seed=1) as world:
        publisher, subscriber = world.publishers[0], world.subscribers[0]
        while len(publisher.sent) < 1:
            assert world.step()
        while world.next_event_ns() < publisher.next_action_ns():
            assert world.step()
        world.network.set_link(Link(loss_ppm=1_000_000))
        assert world.step()
        assert len(publisher.sent) == 2
        world.network.set_link(scenario.link)
        lost_at_ns = world.now_ns
        while subscriber.positions.get(publisher.session_id) != publisher.position:
            assert world.step()
        assert world.now_ns - lost_at_ns < 200 * MS_NS
