# SPDX-License-Identifier: Apache-2.0
"""The sample of conditions under ``fc=nak``: how it is drawn and judged."""

from __future__ import annotations

from itertools import islice

import pytest
from click.testing import CliRunner

from penstock.cli.sim import command
from penstock.sim import grid, sobol
from penstock.sim.scenario import SECOND_NS


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
    with pytest.raises(ValueError, match=f"{dimensions} dimensions"):
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
    assert {kind: kinds.count(kind) > 5 for kind in ("slow", "lost", "healthy", "copes")} == {
        "slow": True, "lost": True, "healthy": True, "copes": True
    }


def test_a_seed_that_is_no_hexadecimal_number_is_refused() -> None:
    done = CliRunner().invoke(command, ["grid", "nak", "--seed", "wx"])
    assert done.exit_code == 2
    assert "'wx' is not hexadecimal" in done.output
