# SPDX-License-Identifier: Apache-2.0
"""Pools of credits in virtual time: how often generated scenarios have them, and that an oracle
finds a pool that grants more than it has."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest
from support.seeds import classes_of

from penstock.daemon.conductor.sagas import credit_pools
from penstock.daemon.conductor.state.model import Subscription
from penstock.sim import files
from penstock.sim.core import Link
from penstock.sim.scenario import MS_NS, PublisherScript, Scenario, SubscriberScript, host_ip
from penstock.sim.world import run

CREDITS = 20


def pooled(*, shared: bool) -> Scenario:
    """One client reads a stream from another host and, with ``shared``, one over IPC."""
    there = f"aeron:udp?endpoint={host_ip(1)}:44500"
    options = f"ps-credits={CREDITS}|ps-credit-policy=round_robin"
    options += "|ps-credit-pool=client" if shared else ""
    published = [(0, there, 1001), (0, there, 1001)] + [(1, "aeron:ipc", 1002)] * 2 * shared
    read = [(f"{there}|{options}", 1001)] + [(f"aeron:ipc?{options}", 1002)] * shared
    return Scenario(
        name="pooled",
        link=Link(delay_ns=5 * MS_NS, loss_ppm=20_000),
        publishers=tuple(
            PublisherScript(host=host, channel=channel, stream_id=stream, count=400,
                            size_low=10, size_high=500, exclusive=True)
            for host, channel, stream in published
        ),
        subscribers=tuple(
            SubscriberScript(host=1, channel=channel, stream_id=stream, client=int(shared),
                             poll_limit=2, interval_ns=MS_NS)
            for channel, stream in read
        ),
    )


@pytest.mark.parametrize("shared", [False, True])
def test_the_publishers_of_a_pool_share_its_credits(shared: bool) -> None:
    report = run(pooled(shared=shared), seed=1)
    assert report.violations == ()
    assert report.messages == (1600 if shared else 800)


@pytest.mark.parametrize("shared", [False, True])
def test_an_oracle_finds_a_pool_that_grants_more_than_it_has(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def size(subscription: Subscription) -> int:
        return subscription.plan.credits + 5

    monkeypatch.setattr(credit_pools, "_size", size)
    found = run(pooled(shared=shared), seed=1).violations
    assert any("not released in pool" in violation for violation in found), found


def test_applications_with_the_same_number_share_one_client() -> None:
    scenario = pooled(shared=True)
    assert files.parse(files.dump(scenario), "x.toml").subscribers == scenario.subscribers
    apart = attrs.evolve(scenario, subscribers=tuple(
        attrs.evolve(s, client=0) for s in scenario.subscribers
    ))
    assert run(apart, seed=1).trace != run(scenario, seed=1).trace


def test_one_seed_in_twenty_has_each_kind_of_pool_and_spies_of_python_strategies() -> None:
    seeds = range(1, 401)
    found = Counter(name for seed in seeds for name in classes_of(seed))
    for name in (
        "pool: ipc", "pool: network", "pool: client", "pool: round_robin", "pool: fifo",
        "pool: weighted", "pool: deficit", "spies: fc=py",
    ):
        assert found[name] >= len(seeds) / 20, (name, found[name])
