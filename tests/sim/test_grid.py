# SPDX-License-Identifier: Apache-2.0
"""The sample of conditions under ``fc=nak``: how it is drawn and judged."""

from __future__ import annotations

from itertools import islice

import attrs
import pytest
from click.testing import CliRunner

from penstock.cli.sim import command
from penstock.sim import files, library
from penstock.sim.generate import grid, sobol
from penstock.sim.scenario import SECOND_NS, Budget
from penstock.sim.world import World, run


def test_each_interval_of_each_axis_holds_one_point() -> None:
    for seed in (0, 7):
        for values in zip(*islice(sobol.points(sobol.MOST_DIMENSIONS, seed), 64), strict=True):
            assert sorted(int(value * 64) for value in values) == list(range(64))


def test_each_square_of_two_axes_holds_one_point() -> None:
    """The first two axes are a (0, 2)-net in base 2."""
    points = list(islice(sobol.points(2, 3), 64))
    assert len({(int(x * 8), int(y * 8)) for x, y in points}) == 64


@pytest.mark.parametrize("dimensions", [0, sobol.MOST_DIMENSIONS + 1])
def test_no_other_number_of_dimensions(dimensions: int) -> None:
    with pytest.raises(ValueError, match=f"dimensions={dimensions}:"):
        next(sobol.points(dimensions, 1))


def test_a_sample_keeps_to_its_axes() -> None:
    cells = grid.sample(0x69CEF0D0, 600)
    assert [cell.number for cell in cells] == list(range(600))
    assert cells == grid.sample(0x69CEF0D0, 600) != grid.sample(0x69CEF0D1, 600)
    for cell in cells:
        assert 1e6 <= cell.offered <= 100e6
        assert cell.group * cell.offered <= grid.MOST_OFFERED
        assert 0 <= cell.rtt_ns <= 200_000_000
        assert 65536 <= cell.term_bytes <= 16 << 20
        assert cell.slow <= cell.group <= 50
        # Rounded to whole messages, the cadence keeps the rate.
        assert 750_000 <= cell.cadence_ns <= 1_250_000_000
        taken = cell.batch * cell.frame * SECOND_NS // cell.cadence_ns
        assert cell.attainable <= taken * 1.001
        assert cell.length_ns >= 5 * SECOND_NS
        assert cell.warm_ns < cell.length_ns
    kinds = [cell.kind() for cell in cells]
    assert {kind: kinds.count(kind) > 2 for kind in ("slow", "lost", "healthy", "copes")} == {
        "slow": True, "lost": True, "healthy": True, "copes": True
    }


def test_a_seed_that_is_no_hexadecimal_number_is_refused() -> None:
    done = CliRunner().invoke(command, ["grid", "nak", "--seed", "wx"])
    assert done.exit_code == 2
    assert "'wx' is not hexadecimal" in done.output


def test_a_sample_of_the_grid_holds() -> None:
    """Forty conditions that were not chosen: in 95 % nothing is missed after the warm-up and slow
    readers get nine tenths of what they could; in none of them less than seven."""
    outcomes = [grid.run_cell(cell, 1) for cell in grid.sample(0x0A1B2C3D, 40)]
    found = grid.verdict(outcomes)
    assert found.holds, [f"{grid.describe(cell)}: {cause}" for cell, cause in found.failures]


def reads_nine_tenths(cell: grid.Cell, host: int, cycle_ms: int) -> None:
    """One host looks each ``cycle_ms``, as on a busy machine."""
    scenario = grid.scenario(cell)
    machines = tuple(
        attrs.evolve(machine, cycle_ns=cycle_ms * 1_000_000) if machine.host == host else machine
        for machine in scenario.machines
    )
    with World(attrs.evolve(scenario, machines=machines), 1) as world:
        world.run_until(SECOND_NS // 2 + cell.warm_ns)
        reader = world.subscribers[0].reader(world.publishers[0].ledgers[0])
        before, missed = reader.messages, reader.missed
        world.run_until(world.now_ns + cell.length_ns)
        reader = world.subscribers[0].reader(world.publishers[0].ledgers[0])
        read = (reader.messages - before) * cell.frame * SECOND_NS // cell.length_ns
        assert world.native.violations() == []
        assert reader.missed == missed
        assert read >= 0.9 * cell.attainable


@pytest.mark.parametrize("cycle_ms", [2, 5, 10])
def test_a_receiver_that_looks_late_takes_no_arrival_for_a_residue(cycle_ms: int) -> None:
    """Data that arrives between the end of a batch and the look was not left by the reader."""
    reads_nine_tenths(attrs.evolve(
        grid.sample(1, 1)[0], cadence_ns=98_900_000, nominal=132 * 1408 * 10_000 // 989,
        offered=4_700_000, term_bytes=512 << 10, rtt_ns=5_500_000, group=3, slow=1, mtu=1408,
        frame=1408, batch=132,
    ), 1, cycle_ms)


@pytest.mark.parametrize("cycle_ms", [2, 5, 10])
def test_a_sender_that_looks_late_loses_none_of_its_rate(cycle_ms: int) -> None:
    """Its bucket holds more than the rate of 4 ms, so that it sends what it could have sent."""
    reads_nine_tenths(attrs.evolve(
        grid.sample(1, 1)[0], cadence_ns=6_963_167, nominal=2_224_275, offered=8_284_828,
        term_bytes=512 << 10, rtt_ns=2_177_316, group=1, slow=1, mtu=1408, frame=1408, batch=11,
    ), 0, cycle_ms)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    ("batch", "cadence_ns", "offered", "rtt_ns"),
    [(7, 2_005_126, 27_133_628, 4_350_732), (16, 2_969_700, 66_000_000, 1_000_000),
     (17, 1_513_100, 32_800_000, 1_300_000)],
)
def test_a_reader_of_a_group_that_was_overrun_comes_back(
    batch: int, cadence_ns: int, offered: int, rtt_ns: int, seed: int
) -> None:
    """At a term of 64 KiB the sender passes what it can retransmit within a NAK's random delay."""
    found = grid.run_cell(attrs.evolve(
        grid.sample(1, 1)[0], cadence_ns=cadence_ns,
        nominal=batch * 1408 * SECOND_NS // cadence_ns, offered=offered, term_bytes=65536,
        rtt_ns=rtt_ns, group=3, slow=1, mtu=1408, frame=1408, batch=batch,
    ), seed)
    assert found.cause() == "", grid.report(found)


@pytest.mark.parametrize(
    ("batch", "cadence_us", "takes"),
    [(1, 2500, 400), (22, 55_000, 376), (40, 100_000, 354), (15, 50_000, 292), (20, 50_000, 382),
     (10, 25_000, 397), (40, 133_000, 266)],
)
def test_any_cadence_of_the_slow_reader_is_slowed_to(
    batch: int, cadence_us: int, takes: int
) -> None:
    """The scenario ``slow-nak`` with another cadence: 300 or 400 messages of 1000 a second.  A poll
    ends where a term does, so of 248 messages in a term the reader takes fewer a second."""
    scenario = files.load(library.path_of("slow-nak"))
    slow = attrs.evolve(
        scenario.subscribers[0], poll_limit=batch, interval_ns=cadence_us * 1000
    )
    scenario = attrs.evolve(
        scenario,
        subscribers=(slow, *scenario.subscribers[1:]),
        publishers=(attrs.evolve(scenario.publishers[0], count=5000),),
        budget=Budget(
            missed_most=0, rate_from_ns=4 * SECOND_NS, rate_until_ns=12 * SECOND_NS,
            rate_least=takes * 1000 * 9 // 10, rate_most=takes * 1000 * 11 // 10,
        ),
    )
    report = run(scenario, 3)
    assert report.violations == ()


def test_a_reader_below_the_floor_gets_its_gaps_one_event_and_one_line() -> None:
    """A reader of 60 kB/s in a group that is never sent less than 128 KiB/s."""
    cell = attrs.evolve(
        grid.sample(1, 1)[0], cadence_ns=20_000_000, nominal=60_000, offered=2_000_000,
        term_bytes=65536, rtt_ns=2_000_000, group=3, slow=1, mtu=1408, frame=1200, batch=1,
    )
    with World(attrs.evolve(grid.scenario(cell), hostile=False), 1) as world:
        world.run_until(20 * SECOND_NS)
        reader = world.subscribers[0].reader(world.publishers[0].ledgers[0])
        notified = world.subscribers[0].gaps
        gaps = [gap for gap in notified if (gap.to_position or 0) < reader.position]
        assert world.native.violations() == []
        assert len(gaps) > 1
        assert sum(gap.messages or 0 for gap in gaps) == reader.missed
        names = [name for _, name, _ in world.hosts[1].events]
        assert names.count("reader_outrun") == 1
        assert world.hosts[1].counters(15)[15] == 1    # lines in the error log
        # It is back at once: what it reads is its own rate.
        assert reader.messages * cell.frame / 20 > 0.9 * 60_000


def test_a_group_that_copes_is_silent() -> None:
    """44 000 datagrams at a term of 16 MiB: at most 60 status messages for each receiver, no
    signal, and no rate that binds."""
    cell = attrs.evolve(
        grid.sample(1, 1)[0], cadence_ns=10_000_000, nominal=4_000_000, offered=2_800_000,
        term_bytes=16 << 20, rtt_ns=2_000_000, group=4, slow=4, mtu=1408, frame=1408, batch=100,
    )
    with World(grid.scenario(cell), 1) as world:
        while world.network.wire().data < 44_000:
            world.run_until(world.now_ns + SECOND_NS)
        assert world.network.wire().status_messages <= 60 * 4
        assert world.network.wire().ext == 0
        rates = [
            world.hosts[0].driver.publication_status(publication.id).rate_bytes_per_s
            for publication in world.hosts[0].publications()
        ]
        assert rates == [0]
