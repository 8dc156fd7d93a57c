# SPDX-License-Identifier: Apache-2.0
"""``ps-policy`` in virtual time: the oracle compares the drops reported to publishers with those
that the log and the gaps of readers state."""

from __future__ import annotations

import attrs
import pytest

from penstock.sim.scenario import MS_NS, SECOND_NS, Scenario, two_hosts
from penstock.sim.world import World


def policed(
    options: str,
    *,
    count: int,
    size: int = 1000,
    publisher_pauses: tuple[tuple[int, int], ...] = (),
    reader_pauses: tuple[tuple[int, int], ...] = (),
) -> Scenario:
    """One stream with terms of 64 KiB over a link without loss."""
    base = two_hosts(loss_ppm=0, delay_ns=MS_NS)
    (publisher,), (reader,) = base.publishers, base.subscribers
    return attrs.evolve(
        base,
        publishers=(
            attrs.evolve(
                publisher, channel=f"{reader.channel}|term-length=64k|{options}", count=count,
                size_low=size, size_high=size, interval_ns=5 * MS_NS, pauses=publisher_pauses,
            ),
        ),
        subscribers=(
            attrs.evolve(
                reader, channel=f"{reader.channel}|{options.split('|')[0]}", pauses=reader_pauses
            ),
        ),
    )


@pytest.mark.parametrize("paused_s", [0.2, 0.5, 1, 2, 3])
def test_drops_agree_wherever_in_the_log_the_first_one_is(paused_s: float) -> None:
    """The log is three terms of 60 messages: the first drops come up to three laps later."""
    begin = round(paused_s * SECOND_NS)
    scenario = policed(
        "ps-policy=drop_newest|ps-depth=4k", count=1000, reader_pauses=((begin, begin + SECOND_NS),)
    )
    with World(scenario, 1) as world:
        assert world.run().violations == ()
        assert world.native.ledger_dropped(world.publishers[0].ledgers[0]) > 0


@pytest.mark.parametrize("depth", ["4k", "24k"])
@pytest.mark.parametrize("size", [8000, 12000, 16000])
@pytest.mark.parametrize("turn_ms", [0.3, 3])
def test_bounds_hold_where_a_term_begins_with_stated_drops(
    depth: str, size: int, turn_ms: float
) -> None:
    """Long messages leave much padding at a term's end, in which the receiver's window ends."""
    base = policed(f"ps-policy=drop_newest|ps-depth={depth}", count=100, size=size)
    (publisher,), (reader,) = base.publishers, base.subscribers
    scenario = attrs.evolve(
        base,
        publishers=(
            attrs.evolve(
                publisher, channel=publisher.channel.replace("64k", "128k"), interval_ns=MS_NS // 10
            ),
        ),
        subscribers=(
            attrs.evolve(
                reader, channel=f"{reader.channel}|rcv-wnd=4k", poll_limit=1,
                interval_ns=round(turn_ms * MS_NS),
            ),
        ),
    )
    with World(scenario, 1) as world:
        assert world.run().violations == ()
        assert world.native.ledger_dropped(world.publishers[0].ledgers[0]) > 0


@pytest.mark.parametrize("resumed_ms", [950, 1200, 1990])
def test_a_publication_that_failed_before_a_pause_continues_after_it(resumed_ms: int) -> None:
    scenario = policed(
        "ps-policy=error|ps-depth=4k", count=400,
        reader_pauses=((500 * MS_NS, 1000 * MS_NS),),
        publisher_pauses=((900 * MS_NS, resumed_ms * MS_NS),),
    )
    with World(scenario, 1) as world:
        assert world.run().violations == ()
        assert world.publishers[0].finished


@pytest.mark.parametrize("rate", ["", "|ps-rate=100k", "|ps-rate=300"])
@pytest.mark.parametrize("medium", ["ipc", "unicast"])
def test_the_smallest_depth_admits_messages_beside_stated_drops(medium: str, rate: str) -> None:
    """The daemon refuses a depth of 32 bytes: the frame that states drops would use it up, and no
    further message would be accepted."""
    base = policed(f"ps-policy=drop_newest|ps-depth=33{rate}", count=60, size=100)
    (publisher,), (reader,) = base.publishers, base.subscribers
    out, inward = publisher.channel, reader.channel
    if medium == "ipc":
        out = f"aeron:ipc?{out.partition('|')[2]}"
        inward = "aeron:ipc?ps-policy=drop_newest"
    scenario = attrs.evolve(
        base,
        publishers=(attrs.evolve(publisher, channel=out, interval_ns=MS_NS),),
        subscribers=(attrs.evolve(
            reader, channel=inward, host=0 if medium == "ipc" else 1, poll_limit=5,
            interval_ns=5 * MS_NS,
        ),),
    )
    with World(scenario, 1) as world:
        assert world.run().violations == ()
        (ledger,) = world.publishers[0].ledgers
        (got,) = world.subscribers[0].readers(ledger)
        dropped = world.native.ledger_dropped(ledger)
        assert (got.messages, got.missed, got.dropped) == (60, 0, dropped)
        assert dropped > 0 or (medium == "unicast" and not rate)
