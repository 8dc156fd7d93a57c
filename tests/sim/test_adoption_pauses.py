# SPDX-License-Identifier: Apache-2.0
"""A daemon that is killed and started again: how long its streams stand still, in virtual time."""

from __future__ import annotations

import pytest

from penstock.core.client import pub_pressure
from penstock.core.stream_types import Cause
from penstock.sim.core import Link
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    HostScript,
    PublisherScript,
    Scenario,
    SubscriberScript,
    host_ip,
)
from penstock.sim.world import World

GROUP = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24"
DEATH_NS = 2 * SECOND_NS
BACK_NS = DEATH_NS + 100 * MS_NS
STEP_NS = 10 * MS_NS
#: The slow reader takes 8 KiB, a quarter of the window, in 65 ms: then a status message leaves.
PAUSE_NS = 250 * MS_NS


def scenario(channel: str, *, ends: tuple[int, int], dead: tuple[int, ...]) -> Scenario:
    """A stream to two readers, of which one is slow, over windows that are full at the death.

    :param ends: the hosts of the publisher and of the readers.
    :param dead: the hosts whose daemons are killed.
    """
    sender, receiver = ends
    return Scenario(
        name="adoption",
        hosts=2,
        link=Link(delay_ns=MS_NS // 10),
        machines=tuple(
            HostScript(host=host, adopt=True, crash_ns=DEATH_NS, restart_ns=BACK_NS)
            for host in dead
        ),
        publishers=(
            PublisherScript(
                host=sender, channel=f"{channel}|term-length=64k", count=20_000, size_low=32,
                size_high=32, start_ns=SECOND_NS,
            ),
        ),
        subscribers=(
            SubscriberScript(host=receiver, channel=channel),
            SubscriberScript(
                host=receiver, channel=channel, poll_limit=10, interval_ns=5 * MS_NS
            ),
        ),
        limit_ns=60 * SECOND_NS,
    )


@pytest.mark.parametrize(("ends", "dead"), [
    ((0, 0), (0,)), ((0, 1), (0,)), ((0, 1), (1,)), ((0, 1), (0, 1)),
], ids=["both ends on one host", "sender", "receiver", "two hosts"])
@pytest.mark.parametrize("flow_control", ["unicast", "max", "min", "tagged,g:5"])
def test_streams_continue_at_once_when_the_daemon_is_back(
    flow_control: str, ends: tuple[int, int], dead: tuple[int, ...]
) -> None:
    unicast = f"aeron:udp?endpoint={host_ip(ends[1])}:40456"
    channel = unicast if flow_control == "unicast" else f"{GROUP}|fc={flow_control}"
    with World(scenario(channel, ends=ends, dead=dead), seed=1) as world:
        world.run_until(BACK_NS)
        (ledger,) = world.publishers[0].ledgers
        fast = world.subscribers[0]
        last, moved_ns, longest_ns = fast.reader(ledger).position, BACK_NS, 0
        for at_ns in range(BACK_NS, BACK_NS + 3 * SECOND_NS, STEP_NS):
            world.run_until(at_ns)
            position = fast.reader(ledger).position
            if position > last:
                last, moved_ns = position, at_ns
            longest_ns = max(longest_ns, at_ns - moved_ns)
        assert longest_ns <= PAUSE_NS
        publication = world.publishers[0]._publication
        assert publication is not None
        account = pub_pressure(publication._handle)
        assert account is not None
        assert account.blocked_ns[Cause.DAEMON_AWAY] == (BACK_NS - DEATH_NS if 0 in dead else 0)
        assert world.run().violations == ()
