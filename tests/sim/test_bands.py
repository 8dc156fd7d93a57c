# SPDX-License-Identifier: Apache-2.0
"""The shares of saturated bands, on hosts with short duty cycles: the quantum follows the rate."""

from __future__ import annotations

import pytest

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

_PRIORITIES = (900, 600, 300, 0, -100)
_START_NS = SECOND_NS // 10
_STREAMS = 2        # of each band: while one of them has its turn, the other one waits


def saturated(cycle_ns: int, loss_ppm: int) -> Scenario:
    """Return a scenario in which each band always has data; the last streams are relayed."""
    channel = f"aeron:udp?endpoint={host_ip(1)}:40456|mtu=8192"
    options = [*(f"|ps-priority={priority}" for priority in _PRIORITIES), ""] * _STREAMS
    return Scenario(
        name="saturated bands",
        link=Link(delay_ns=20_000, loss_ppm=loss_ppm),
        publishers=tuple(
            PublisherScript(
                host=0, channel=f"{channel}|term-length=1m{option}", stream_id=number,
                count=100_000, size_low=8000, size_high=8000, start_ns=_START_NS,
                exclusive=True, relayed=not option,
            )
            for number, option in enumerate(options)
        ),
        subscribers=tuple(
            SubscriberScript(host=1, channel=f"{channel}|rcv-wnd=512k", stream_id=number)
            for number in range(len(options))
        ),
        machines=(
            HostScript(host=0, cycle_ns=cycle_ns, driver=(("governor", 1),)),
            HostScript(host=1, rcvbuf_bytes=64 << 20),
        ),
    )


@pytest.mark.parametrize("cycle_ns", [20_000, 45_000, 60_000])
@pytest.mark.parametrize("loss_ppm", [0, 3000])
def test_saturated_bands_have_their_shares(cycle_ns: int, loss_ppm: int) -> None:
    with World(saturated(cycle_ns, loss_ppm), 1) as world:
        world.run_until(_START_NS + 120 * MS_NS)
        assert world.native.violations() == []
