# SPDX-License-Identifier: Apache-2.0
"""The page about Spark: its tutorial runs, its tables are complete; and a session finds the source
by itself where the distribution is on the path."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.hosts import PenstockHost
from support.java import needs_java
from support.late_worker import LATE_WORKER, run_spark
from support.patience import Patience

from penstock.spark_bridge._decode import HEADERS, METADATA
from penstock.spark_bridge._options import NAMES

pytestmark = [needs_java, pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
TIMEOUT_S = 300.0
# A busy machine starts Spark's workers slowly.
ARGUMENTS = (
    "--conf spark.ui.enabled=false --conf spark.python.authenticate.socketTimeout=600s "
    "--driver-memory 600m pyspark-shell"
)


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def first_cells(text: str) -> set[str]:
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_tables_have_every_option_and_column() -> None:
    assert first_cells(section("Options of the source")) == set(NAMES.values())
    columns = {"value", HEADERS[0], *(name for name, *_ in METADATA)}
    assert first_cells(section("Columns")) == columns


def test_the_tutorial_runs(
    host: PenstockHost, port: Callable[[], int], tmp_path: Path
) -> None:
    """With fewer messages; the publisher is held for as long as the query says."""
    query, publish = re.findall(r"^```python\n(.*?)^```", section("Tutorial"), re.S | re.M)
    address = f"127.0.0.1:{port()}"
    query, publish = (text.replace("127.0.0.1:40456", address) for text in (query, publish))
    publish = publish.replace("100_001", "20_001")
    query = query.replace("awaitTermination()", f"awaitTermination({TIMEOUT_S})")
    env = {**os.environ, "PENSTOCK_DIR": str(host.directory), "PYSPARK_PYTHON": sys.executable,
           "PYSPARK_SUBMIT_ARGS": ARGUMENTS}
    (tmp_path / "query.py").write_text(query)
    output = tmp_path / "out"
    with contextlib.ExitStack() as stack:
        def read() -> subprocess.Popen[str]:
            file = stack.enter_context(output.open("w"))
            process = subprocess.Popen(
                [sys.executable, "query.py"], cwd=tmp_path, env=env, stdout=file,
                stderr=subprocess.STDOUT, text=True,
            )
            stack.callback(end, process)
            return process

        reader = read()
        writer = subprocess.Popen(
            [sys.executable, "-c", publish], env=env, text=True, stdout=subprocess.PIPE,
        )
        stack.callback(end, writer)
        patience = Patience(TIMEOUT_S)
        while not (counted(output.read_text()) and writer.poll() is not None):
            assert not patience.is_over, output.read_text()
            if reader.poll() is not None:
                assert LATE_WORKER in output.read_text(), output.read_text()
                reader = read()
            time.sleep(0.1)
        assert writer.stdout is not None
        lines = writer.stdout.read().splitlines()
        assert [line.split()[0] for line in lines] == ["10000", "20000"]


def end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait()


def counted(text: str) -> bool:
    """The last table of the console: 9 messages of one digit, 90 of two, ..."""
    last = text.rsplit("Batch: ", 1)[-1]
    found = {int(a): int(b) for a, b in re.findall(r"\|\s*(\d+)\|\s*(\d+)\|", last)}
    return found == {9: 9, 10: 90, 11: 900, 12: 9000, 13: 10_001}


@pytest.mark.parametrize(
    "call", ["", "register(spark)"], ids=["it says nothing", "it registers it nevertheless"]
)
def test_a_session_finds_the_source_by_itself(
    host: PenstockHost, tmp_path: Path, call: str
) -> None:
    program = f"""
from pyspark.sql import SparkSession
from penstock.spark_bridge import register
spark = SparkSession.builder.master("local[1]").getOrCreate()
{call}
options = {{"channel": "aeron:ipc", "streamId": 1, "subscription": "found"}}
print(spark.read.format("penstock").options(**options).load().count())
spark.stop()
"""
    done = run_spark(
        [sys.executable, "-c", program], cwd=tmp_path, timeout=TIMEOUT_S,
        env={**os.environ, "PENSTOCK_DIR": str(host.directory), "PYSPARK_PYTHON": sys.executable,
             "PYTHONPATH": str(ROOT),     # as site-packages would have it
             "PYSPARK_SUBMIT_ARGS": ARGUMENTS},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0"]
    assert "replaced" not in done.stderr        # a warning of Spark about two registrations
