# SPDX-License-Identifier: Apache-2.0
"""``python -m bench.pressure``: load alone raises the pressure of a daemon and lowers it again, and
no message is lost or reordered meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.not_run import module


def test_load_raises_pressure_and_loses_nothing(tmp_path: Path) -> None:
    """The command fails if a message is missing or out of order."""
    module("numpy")
    out = tmp_path / "pressure.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench.pressure", "--steps", "1,400,1", "--seconds", "2",
         "--json", str(out)],
        capture_output=True, text=True, check=False, timeout=300,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["accepted"] == found["delivered"] > 0
    assert found["wrong"] == 0
    by_streams = {
        busy: max(second["pressure"] for second in found["seconds"] if second["busy"] == busy)
        for busy in (1, 400)
    }
    assert by_streams[400] > by_streams[1]
    assert found["seconds"][-1]["pressure"] < by_streams[400]
    assert any(second["throttled"] for second in found["seconds"] if second["busy"] == 400)
