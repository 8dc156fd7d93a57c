# SPDX-License-Identifier: Apache-2.0
"""Drawn streams with ``ps-policy=drop_oldest`` beside the streams and faults of a seed: each reader
gets each message, or a gap that counts it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.sim.generate import oldest
from penstock.sim.generate.fuzz import generate
from penstock.sim.runner import attempt
from penstock.sim.scenario import Scenario

SEEDS = 400
#: Draws of each kind of depth.
DRAWS = 12


def draws(kind: str) -> Iterator[tuple[int, Scenario]]:
    for seed in range(1, SEEDS):
        scenario = oldest.add(generate(seed, plain=True), seed)
        if f"drop_oldest: {kind}" in scenario.classes:
            yield seed, scenario


@pytest.mark.parametrize("kind", ["messages", "bytes"])
def test_skipped_messages_of_drawn_streams_are_counted(kind: str) -> None:
    run = 0
    for _, (seed, scenario) in zip(range(DRAWS), draws(kind), strict=False):
        (publisher,) = (p for p in scenario.publishers if p.stream_id == oldest.STREAM)
        assert "ps-policy=drop_oldest" in publisher.channel
        result = attempt(scenario, seed)
        assert result.violations == (), f"seed {seed}: {result.violations}"
        run += 1
    assert run == DRAWS
