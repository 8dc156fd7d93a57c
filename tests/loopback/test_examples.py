# SPDX-License-Identifier: Apache-2.0
"""The scripts and the notebook in ``examples/`` run as they stand, against a real daemon."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from support.hosts import PenstockHost
from support.java import needs_java
from support.late_worker import run_spark

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_S = 500.0
pytestmark = [needs_java, pytest.mark.slow, pytest.mark.timeout(540)]


def run(host: PenstockHost, *argv: str) -> str:
    done = run_spark(
        [sys.executable, *argv], timeout=TIMEOUT_S,
        env={**os.environ, "PENSTOCK_DIR": str(host.directory)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_query_reads_a_stream_and_the_publisher_says_who_holds_it(host: PenstockHost) -> None:
    said = run(host, str(EXAMPLES / "spark_stream.py"))
    assert "published 20000" in said
    assert "receiver_window" in said or "slow_subscriber" in said
    assert re.search(r"most by [^\s:]", said), said
    # the listener: a batch by which the query held the publisher
    assert re.search(
        r"behind by \d+ messages, \d+ bytes; held aeron:udp\S+ for \d+ ms by example on \S+; "
        r"0 bytes lost in 0 gaps", said
    ), said


def test_a_query_publishes_whole_parts(host: PenstockHost) -> None:
    said = run(host, str(EXAMPLES / "spark_sink.py"))
    assert "partition 0: 500 messages\n" in said
    assert said.count("partition 1: 500 messages\n") == 2


def test_the_notebook_runs_from_top_to_bottom(host: PenstockHost, tmp_path: Path) -> None:
    """Its cells one after another, as a kernel would: without Jupyter."""
    notebook = json.loads((EXAMPLES / "spark.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 6
    assert all(cell["outputs"] == [] for cell in cells)
    script = tmp_path / "notebook.py"
    script.write_text("\n".join("".join(cell["source"]) for cell in cells), encoding="utf-8")
    run(host, str(script))
