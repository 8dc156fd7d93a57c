# SPDX-License-Identifier: Apache-2.0
"""``python -m bench.isolation``: the rates of four readers while a fifth is stopped."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def test_four_readers_are_measured_while_a_fifth_is_stopped() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.isolation", "--pairs", "1", "--seconds", "1",
         "--stop-s", "2"],
        capture_output=True, text=True, check=False, timeout=120, cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "stopped for 2 s" in done.stdout
    found = re.findall(r"(ipc|udp)  first percentile [\d.]+ .*median ([\d.]+)", done.stdout)
    # A reader that waits for the stopped one gets nothing.
    assert [(medium, float(ratio) > 0.5) for medium, ratio in found] == [
        ("ipc", True), ("udp", True)
    ]
