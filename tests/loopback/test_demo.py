# SPDX-License-Identifier: Apache-2.0
"""The demonstration is what a newcomer sees first: it has to work, end, and leave nothing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.java import needs_java

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from demo import flights  # noqa: E402

SHARED = Path("/dev/shm")


def remains() -> set[Path]:
    return set(SHARED.glob("penstock-demo-*"))


def start(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "demo", *options], cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )


@needs_java
@pytest.mark.slow
@pytest.mark.timeout(640)
def test_the_demo_is_equal_to_the_last_row_and_leaves_nothing() -> None:
    before = remains()
    with start() as demo:
        output, _ = demo.communicate(timeout=620)
    assert demo.returncode == 0, output
    assert "EQUAL: 336,776 records" in output
    assert "EQUAL: Spark's aggregate of 336,776 records is the direct one" in output
    assert remains() == before


@needs_java
@pytest.mark.slow
@pytest.mark.timeout(640)
def test_an_interrupted_demo_leaves_nothing() -> None:
    before = remains()
    with start("--rate", "2000") as demo:
        assert demo.stdout is not None
        demo.stdout.readline()      # a first line of figures: everything is up
        demo.send_signal(signal.SIGTERM)
        output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130, output
    assert remains() == before


def test_a_missing_record_changes_the_aggregate() -> None:
    lines = flights.lines()[:1000]
    whole, part = flights.Aggregate(), flights.Aggregate()
    whole.add(memoryview(line) for line in lines)
    part.add(memoryview(line) for line in lines[:-1])
    assert whole.records == part.records + 1
    assert whole.sha256 != part.sha256
    assert whole.carriers() != part.carriers()
