# SPDX-License-Identifier: Apache-2.0
"""Drawn streams with ``ps-policy=drop_oldest`` beside the streams and faults of a seed: each reader
gets each message, or a gap that counts it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.seeds import classes_of

from penstock.sim.generate import oldest
from penstock.sim.generate.fuzz import generate
from penstock.sim.runner import attempt
from penstock.sim.scenario import Scenario

SEEDS = 400
#: Rules of policies, depths, isolation and retention. Relays: test_relay_rules.py.
KINDS = (
    "drop_oldest", "drop_oldest: messages", "drop_oldest: bytes", "drop_oldest: closed window",
    "policy: block", "policy: error", "policy: drop_newest", "relay: rate_limit", "low watermark",
    "depth: messages", "retention: bytes", "retention: age", "isolated: independent",
    "isolated: drop_oldest", "isolated: adoption", "isolated: plain receiver", "fan-in: equal",
    "fan-in: priority", "fan-out: min", "fan-out: independent",
)
#: Draws of each kind of depth.
DRAWS = 12


def draws(kind: str) -> Iterator[tuple[int, Scenario]]:
    for seed in range(1, SEEDS):
        scenario = oldest.add(generate(seed, plain=True), seed)
        if f"drop_oldest: {kind}" in scenario.classes:
            yield seed, scenario


def test_a_twentieth_of_the_seeds_has_each_kind() -> None:
    found = [name for seed in range(1, 601) for name in classes_of(seed)]
    for name in KINDS:
        assert found.count(name) >= 30, name


@pytest.mark.parametrize("kind", ["messages", "bytes", "closed window"])
def test_skipped_messages_of_drawn_streams_are_counted(kind: str) -> None:
    run = 0
    for _, (seed, scenario) in zip(range(DRAWS), draws(kind), strict=False):
        (publisher,) = (p for p in scenario.publishers if p.stream_id == oldest.STREAM)
        assert "ps-policy=drop_oldest" in publisher.channel
        result = attempt(scenario, seed)
        assert result.violations == (), f"seed {seed}: {result.violations}"
        run += 1
    assert run == DRAWS
