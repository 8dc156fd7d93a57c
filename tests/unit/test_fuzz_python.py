# SPDX-License-Identifier: Apache-2.0
"""A seeded stretch of each Python fuzz target; the long runs are in tests/fuzz/README.md."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from penstock.config.protocol import codec, control

FUZZ = Path(__file__).parents[1] / "fuzz"
TARGETS = sorted(path.stem.removeprefix("fuzz_") for path in FUZZ.glob("fuzz_*.py"))
RUNS = 100_000
SLOW = {"keys": 20_000}         # a file each


@pytest.mark.parametrize("name", TARGETS)
def test_a_seeded_run_is_clean(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(FUZZ), *sys.path])
    mutate = importlib.import_module("_mutate")
    target = importlib.import_module(f"fuzz_{name}")
    mutate.run(target.target, name, target.WORDS, runs=SLOW.get(name, RUNS), seed=20_26)


def test_every_control_message_is_in_the_corpus() -> None:
    kept = [codec.decode(path.read_bytes())[1] for path in (FUZZ / "corpus/control").iterdir()]
    assert {type(message).__name__ for message in kept} == set(control.MESSAGE_TYPES)


def test_every_target_is_described_with_its_runs() -> None:
    text = (FUZZ / "README.md").read_text(encoding="utf-8")
    for path in (*FUZZ.glob("fuzz_*.py"), *FUZZ.glob("fuzz_*.c")):
        assert f"`{path.name}`" in text
        assert f"\n| {path.stem.removeprefix('fuzz_')} | " in text
