# SPDX-License-Identifier: Apache-2.0
"""``ps-rate`` under loss, pauses and long messages.  The simulator's oracle checks each accepted
message: at most 1.1 of the rate and two messages in any second, at most a tenth of a second ahead
of the sender."""

from __future__ import annotations

import attrs
import pytest

from penstock.sim.scenario import MS_NS, SECOND_NS, two_hosts
from penstock.sim.world import World


@pytest.mark.parametrize("medium", ["udp", "ipc"])
@pytest.mark.parametrize("rate", ["5msg", "500msg", "20000msg", "100k", "8m"])
@pytest.mark.parametrize("size", [1, 1000, 65536])
def test_no_second_has_more_than_the_rate(medium: str, rate: str, size: int) -> None:
    base = two_hosts(loss_ppm=20_000, delay_ns=5 * MS_NS)
    (publisher,), (reader,) = base.publishers, base.subscribers
    channel = publisher.channel if medium == "udp" else "aeron:ipc?term-length=1m"
    seconds = 3
    per_second = int(rate[:-3]) if rate.endswith("msg") else \
        int(rate[:-1]) * (1 << (10 if rate.endswith("k") else 20)) // (size + 64) + 1
    scenario = attrs.evolve(
        base,
        publishers=(
            attrs.evolve(
                publisher, channel=f"{channel}|ps-rate={rate}", size_low=size, size_high=size,
                count=min(seconds * per_second, 20_000, (8 << 20) // size), interval_ns=0,
                exclusive=size == 1,
                pauses=((SECOND_NS, 2 * SECOND_NS),),
            ),
        ),
        subscribers=(
            attrs.evolve(
                reader, host=1 if medium == "udp" else 0,
                channel=reader.channel if medium == "udp" else "aeron:ipc",
            ),
        ),
    )
    with World(scenario, 3) as world:
        assert world.run().violations == ()
        assert world.publishers[0].finished
