# SPDX-License-Identifier: Apache-2.0
"""``ps-depth`` in messages, in virtual time: after each step an oracle counts the messages in the
log that publishers are ahead."""

from __future__ import annotations

import attrs
import pytest
from sim.test_policy_matrix import COUNT, MEDIA, scenario

from penstock.sim.scenario import MS_NS, HostScript, Scenario
from penstock.sim.world import World

POLICIES = ("block", "drop_newest", "error", "rate_limit")


def with_depth(base: Scenario, depth: str) -> Scenario:
    (publisher,) = base.publishers
    channel = f"{publisher.channel}|ps-depth={depth}"
    return attrs.evolve(base, publishers=(attrs.evolve(publisher, channel=channel),))


@pytest.mark.parametrize("depth", ["1msg", "10msg", "16k,10msg"])
@pytest.mark.parametrize("medium", MEDIA)
@pytest.mark.parametrize("policy", POLICIES)
def test_publishers_are_ahead_by_the_depth_at_most(policy: str, medium: str, depth: str) -> None:
    """10 messages fill a sixth of what 16k hold, so the messages bind."""
    with World(with_depth(scenario(policy, medium, 20_000), depth), 5) as world:
        assert world.run().violations == ()
        (publisher,) = world.publishers
        (ledger,) = publisher.ledgers
        dropped = world.native.ledger_dropped(ledger)
        assert publisher.sent == COUNT
        assert (dropped > 0) == (policy == "drop_newest")
        found = [reader for s in world.subscribers for reader in s.readers(ledger)]
        counts = [(got.messages, got.missed, got.dropped) for got in found]
        if medium == "multicast_max":
            counts = [max(counts)]
        assert set(counts) == {(COUNT, 0, dropped)}


@pytest.mark.parametrize("medium", ["ipc", "unicast", "spy"])
@pytest.mark.parametrize("policy", ["block", "drop_newest"])
def test_a_new_daemon_keeps_the_depth(policy: str, medium: str) -> None:
    """The daemon dies while a reader pauses, with as many messages in the log as the depth has."""
    base = with_depth(scenario(policy, medium, 0), "10msg")
    crash_ns = 1500 * MS_NS
    machine = HostScript(
        host=0, adopt=True, crash_ns=crash_ns, restart_ns=crash_ns + 20 * MS_NS
    )
    with World(attrs.evolve(base, machines=(machine,)), 5) as world:
        assert world.run().violations == ()
        (publisher,) = world.publishers
        (ledger,) = publisher.ledgers
        assert publisher.sent == COUNT
        for subscriber in world.subscribers:
            (got,) = subscriber.readers(ledger)
            assert got.messages == COUNT
