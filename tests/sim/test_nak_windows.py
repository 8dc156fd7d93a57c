# SPDX-License-Identifier: Apache-2.0
"""Under fc=nak a congestion window bounds the sender as well, and rare status messages cost no
throughput."""

from __future__ import annotations

import pytest

from penstock.sim.core import Link
from penstock.sim.scenario import MS_NS, SECOND_NS, PublisherScript, Scenario, SubscriberScript
from penstock.sim.world import World

UNICAST = "aeron:udp?endpoint=10.0.0.2:40456"
GROUP = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24"
FRAME = 1408
TERM = 4 << 20


def scenario(
    channel: str, publisher: str, subscriber: str, *, link: Link, receivers: int, offered: int
) -> Scenario:
    return Scenario(
        name="windows-under-nak",
        hosts=1 + receivers,
        link=link,
        publishers=(
            PublisherScript(
                host=0, channel=f"{channel}|term-length={TERM}|{publisher}", count=1 << 30,
                size_low=FRAME - 32, size_high=FRAME - 32, start_ns=SECOND_NS // 2,
                interval_ns=FRAME * SECOND_NS // offered,
            ),
        ),
        subscribers=tuple(
            SubscriberScript(
                host=host, channel=f"{channel}{subscriber}", may_join_late=True, may_miss=True
            )
            for host in range(1, 1 + receivers)
        ),
        hostile=True,
    )


def delivered(world: World, from_s: float, until_s: float) -> int:
    """Messages that the slowest reader had in that time."""
    ends = []
    for at_s in (from_s, until_s):
        world.run_until(int(at_s * SECOND_NS))
        ledger = world.publishers[0].ledgers[-1]
        ends.append([s.reader(ledger).messages for s in world.subscribers])
    return min(after - before for before, after in zip(*ends, strict=True))


@pytest.mark.parametrize("channel", [UNICAST, GROUP])
@pytest.mark.parametrize("rtt_ms", [1, 10, 40, 100])
@pytest.mark.parametrize("queue", [250_000, 1_000_000])
def test_a_congestion_window_under_nak_is_not_void(channel: str, rtt_ms: int, queue: int) -> None:
    """50 MB/s are offered to 100 Mbit/s: at most 2 % are sent again, and the link is used. A group
    uses as much as a unicast stream, which its sender paces as well."""
    link = Link(
        delay_ns=rtt_ms * MS_NS // 2, bandwidth_bytes_per_s=12_500_000, queue_bytes=queue
    )
    what = scenario(
        channel, "fc=nak", "|cc=cubic|rcv-wnd=2m", link=link,
        receivers=1 if channel == UNICAST else 2, offered=50_000_000,
    )
    with World(what, 1) as world:
        messages = delivered(world, 5, 15)
        wire = world.network.wire()
    assert wire.resent_bytes <= 0.02 * wire.data_bytes
    assert messages * FRAME / 10 > 0.9 * 12_500_000


@pytest.mark.parametrize("rtt_ms", [0, 1, 5, 20, 60, 100, 200])
def test_rare_status_messages_cost_no_throughput(rtt_ms: int) -> None:
    """More is offered than a window lets pass in a round trip: under nak as much arrives as when
    each quarter of half a term that was consumed is stated, 99 % of it at least."""
    found = {}
    for publisher, subscriber in (("fc=nak", ""), ("fc=max", f"|rcv-wnd={TERM // 2}")):
        what = scenario(
            GROUP, publisher, subscriber, link=Link(delay_ns=rtt_ms * MS_NS // 2), receivers=2,
            offered=40_000_000,
        )
        with World(what, 1) as world:
            found[publisher] = delivered(world, 4, 10)
    assert found["fc=nak"] >= 0.99 * found["fc=max"]
    per_round = TERM // 2 * 1000 // rtt_ms if rtt_ms else 1 << 40
    assert found["fc=nak"] * FRAME / 6 >= 0.99 * min(40_000_000, per_round)
