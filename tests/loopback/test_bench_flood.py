# SPDX-License-Identifier: Apache-2.0
"""``python -m bench.flood``: calls and the messages of a healthy stream are measured beside
a flood of SETUPs, whose images go."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def test_calls_are_measured_beside_a_flood_and_no_image_stays() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.flood", "--addresses", "1,100", "--rate", "2000",
         "--seconds", "1"],
        capture_output=True, text=True, check=False, timeout=300, cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stdout + done.stderr
    floods = re.findall(
        r"addresses +(\d+) +(\d+) SETUPs a second for [\d.]+ s +100 calls: p99 ([\d.]+) ms",
        done.stdout,
    )
    assert [int(addresses) for addresses, _, _ in floods] == [1, 100], done.stdout
    assert all(int(rate) > 0 and float(p99) > 0 for _, rate, p99 in floods)
    beats = re.findall(
        r"healthy stream: p99 of a message ([\d.]+) ms alone, ([\d.]+) ms beside", done.stdout
    )
    assert len(beats) == 2, done.stdout
    assert all(float(value) > 0 for pair in beats for value in pair)
    after = re.findall(r"after: +RSS ([\d.]+) MiB, (\d+) images, files [\d.]+ MiB", done.stdout)
    assert [int(images) for _, images in after] == [1, 1], done.stdout
