# SPDX-License-Identifier: Apache-2.0
"""A stream that ends because its positions do: every message that was accepted arrives."""

from __future__ import annotations

import attrs
import pytest

from penstock.sim.core import Link
from penstock.sim.scenario import MS_NS, Scenario, host_ip, two_hosts
from penstock.sim.world import World

TERM = 65536
END = TERM << 31


def near_the_end(
    scenario: Scenario, *, initial: int, back: int, extra: str = "", size: int, exclusive: bool
) -> Scenario:
    """A publisher whose first position is ``back`` bytes below the last, with messages for more
    than that."""
    terms = -(-back // TERM)
    term_id = (initial + 2**31 - terms + 2**31) % 2**32 - 2**31
    place = f"|term-length=64k|init-term-id={initial}|term-id={term_id}" \
        f"|term-offset={terms * TERM - back}{extra}"
    publishers = tuple(
        attrs.evolve(
            publisher, channel=publisher.channel.replace("|term-length=1m", "") + place,
            size_low=1, size_high=size, count=100_000, exclusive=exclusive,
            interval_ns=MS_NS // 50,
        )
        for publisher in scenario.publishers
    )
    return attrs.evolve(scenario, publishers=publishers)


def ends_exactly(scenario: Scenario, seed: int) -> None:
    with World(scenario, seed) as world:
        report = world.run()
        assert report.violations == ()
        assert all(publisher.at_end for publisher in world.publishers)
        assert {publisher.position for publisher in world.publishers} <= \
            set(range(END - TERM // 8, END + 1))


@pytest.mark.parametrize("size", [20, 900, 1376, 5000])
@pytest.mark.parametrize("back", [96, 4096, 40_000, 4 * TERM])
@pytest.mark.parametrize("loss_ppm", [0, 50_000])
def test_every_message_before_the_maximum_position_arrives(
    size: int, back: int, loss_ppm: int
) -> None:
    back -= back % 32
    size = min(size, back - 64)
    for seed, (initial, exclusive) in enumerate([(0, True), (7, False), (-(2**31), False)]):
        base = two_hosts(loss_ppm=loss_ppm, delay_ns=2 * MS_NS)
        ends_exactly(
            near_the_end(base, initial=initial, back=back, size=size, exclusive=exclusive), seed
        )


@pytest.mark.parametrize("congestion", ["", "|cc=cubic"])
def test_it_ends_over_a_slow_path_that_repeats_and_reorders(congestion: str) -> None:
    base = two_hosts(delay_ns=20 * MS_NS)
    base = attrs.evolve(
        base,
        link=Link(
            delay_ns=20 * MS_NS, jitter_ns=5 * MS_NS, loss_ppm=50_000, duplicate_ppm=50_000
        ),
        subscribers=tuple(
            attrs.evolve(reader, channel=reader.channel + congestion)
            for reader in base.subscribers
        ),
    )
    ends_exactly(near_the_end(base, initial=-5, back=100_000, size=2000, exclusive=True), 4)


def test_ipc_and_spies_end_there_too() -> None:
    base = two_hosts(loss_ppm=20_000, delay_ns=MS_NS)
    (publisher,), (reader,) = base.publishers, base.subscribers
    local = attrs.evolve(
        base,
        publishers=(publisher, attrs.evolve(publisher, channel="aeron:ipc", stream_id=7)),
        subscribers=(
            reader,
            attrs.evolve(
                reader, host=0, channel=f"aeron-spy:aeron:udp?endpoint={host_ip(1)}:40456"
            ),
            attrs.evolve(reader, host=0, channel="aeron:ipc", stream_id=7),
        ),
    )
    for back in (2048, 5 * TERM):
        scenario = near_the_end(local, initial=3, back=back, size=700, exclusive=False)
        ipc = scenario.publishers[1]
        channel = ipc.channel.replace("aeron:ipc|", "aeron:ipc?")
        ends_exactly(
            attrs.evolve(
                scenario, publishers=(scenario.publishers[0], attrs.evolve(ipc, channel=channel))
            ),
            back,
        )
