# SPDX-License-Identifier: Apache-2.0
"""A seeded stretch of each Python fuzz target; the long runs are in tests/fuzz/README.md."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[1] / "fuzz"
RUNS = 100_000


@pytest.mark.parametrize("name", ["uri", "control", "markers"])
def test_a_seeded_run_is_clean(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(FUZZ), *sys.path])
    mutate = importlib.import_module("_mutate")
    target = importlib.import_module(f"fuzz_{name}")
    mutate.run(target.target, name, target.WORDS, runs=RUNS, seed=20_26)
