# SPDX-License-Identifier: Apache-2.0
"""``python -m bench.bands``: two probes measure the wait for the sender beside bulk streams."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def test_both_probes_measure_their_waits_beside_bulk_streams() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.bands", "--pairs", "2", "--seconds", "0.5", "--bulk", "4"],
        capture_output=True, text=True, check=False, timeout=120, cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(
        r"bulk streams +4  p99 top +([\d.]+) us  flat +([\d.]+) us  ratio ([\d.]+)", done.stdout
    )
    assert found is not None, done.stdout
    assert all(float(value) > 0 for value in found.groups())
