# SPDX-License-Identifier: Apache-2.0
"""Writes golden.json, the traces that test_seed.py expects: ``python tests/sim/golden.py``."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.sim.generate.fuzz import generate
from penstock.sim.runner import attempt

if __name__ == "__main__":
    traces = {str(seed): attempt(generate(seed), seed).trace for seed in (3, 8, 21)}
    Path(__file__).with_name("golden.json").write_text(
        json.dumps(traces, indent=1) + "\n", encoding="utf-8"
    )
    print(json.dumps(traces, indent=1))
