# SPDX-License-Identifier: Apache-2.0
"""``python -m bench.bands``: a probe beside bulk streams, with and without bands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def test_the_probe_measures_its_waits_with_and_without_bands() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.bands", "--pairs", "1", "--seconds", "0.5", "--bulk", "4"],
        capture_output=True, text=True, check=False, timeout=300, cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(
        r"bulk +4  p99 +([\d.]+) without +([\d.]+) us  ratio ([\d.]+)", done.stdout
    )
    assert found is not None, done.stdout
    assert all(float(value) > 0 for value in found.groups())
