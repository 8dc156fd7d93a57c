# SPDX-License-Identifier: Apache-2.0
"""Under ``fc=nak`` a slow reader changes its pace: the sender follows, and no reader misses
messages. ``make soak`` runs more seeds."""

from __future__ import annotations

import os

import attrs
import pytest

from penstock.core.errors import ConfigurationError
from penstock.sim import files
from penstock.sim.generate import paces

SEEDS = int(os.environ.get("PENSTOCK_PACE_SEEDS", "16"))
START = int(os.environ.get("PENSTOCK_PACE_START", "1"))


@pytest.mark.parametrize("seed", range(START, START + SEEDS))
def test_the_sender_follows_a_reader_that_changes_its_pace(seed: int) -> None:
    change = paces.draw(seed)
    assert paces.run(change).cause() == "", paces.describe(change)


def test_a_draw_changes_rate_and_cadence() -> None:
    drawn = [paces.draw(seed) for seed in range(1, 201)]
    assert drawn == [paces.draw(seed) for seed in range(1, 201)]
    faster = [change for change in drawn if change.new.rate >= 2 * change.old.rate]
    slower = [change for change in drawn if change.old.rate >= 2 * change.new.rate]
    assert len(faster) + len(slower) == 200
    assert min(len(faster), len(slower)) > 50
    for part in (faster, slower):
        oftener = [c for c in part if 2 * c.new.cadence_ns < c.old.cadence_ns]
        rarer = [c for c in part if c.new.cadence_ns > 2 * c.old.cadence_ns]
        assert min(len(oftener), len(rarer)) > 10


def test_a_file_states_the_paces_of_a_reader() -> None:
    scenario = attrs.evolve(paces.scenario(paces.draw(1)), subscribers=(
        attrs.evolve(
            paces.scenario(paces.draw(1)).subscribers[0], interval_ns=5_000_000,
            paces=((2_500_000_000, 1_500_000, 20), (3_000_000_000, 2_000_000, 1)),
        ),
    ))
    text = files.dump(scenario)
    assert "paces = [[2.5, 1500, 20], [3, 2000, 1]]" in text
    assert files.parse(text, "x").subscribers == scenario.subscribers


@pytest.mark.parametrize(
    ("value", "says"),
    [("3", "is not a list"), ("[3]", "is not"), ("[[1, 2]]", "is not"), ("[[1, 0, 1]]", "0 us")],
)
def test_a_pace_that_is_none_is_refused(value: str, says: str) -> None:
    text = files.dump(paces.scenario(paces.draw(1)))
    lines = [
        f"paces = {value}" if line.startswith("paces = ") else line for line in text.split("\n")
    ]
    with pytest.raises(ConfigurationError, match=says):
        files.parse("\n".join(lines), "x")
