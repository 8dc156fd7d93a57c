# SPDX-License-Identifier: Apache-2.0
"""Why a data source has to be installed on every node: ``addPyFile`` does not reach the processes
beside the driver that plan a streaming query.

Shown with a source of a few lines in a zip, since penstock is installed where the tests run.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pytest
from support.java import needs_java
from support.late_worker import run_spark

pytestmark = [needs_java, pytest.mark.slow, pytest.mark.timeout(600)]

SOURCE = """
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

class Reader(DataSourceStreamReader):
    def initialOffset(self):
        return {"at": 0}
    def latestOffset(self, start, limit):
        return {"at": 1}
    def partitions(self, start, end):
        return [InputPartition(0)]
    def read(self, partition):
        yield (7,)

class Zipped(DataSource):
    @classmethod
    def name(cls):
        return "zipped"
    def schema(self):
        return "n int"
    def streamReader(self, schema):
        return Reader()
"""

QUERY = """
import sys, tempfile
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "500m")
    .getOrCreate()
)
spark.sparkContext.addPyFile(sys.argv[1])
import zipped_source
spark.dataSource.register(zipped_source.Zipped)
with tempfile.TemporaryDirectory() as checkpoint:
    query = (
        spark.readStream.format("zipped").load().writeStream.format("memory").queryName("rows")
        .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    )
    query.awaitTermination(120)
print("rows:", [row.n for row in spark.sql("select n from rows").collect()])
"""


def test_add_py_file_does_not_reach_the_planner(tmp_path: Path) -> None:
    archive = tmp_path / "source.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("zipped_source.py", SOURCE)
    done = run_spark(
        [sys.executable, "-c", QUERY, str(archive)], timeout=500,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode != 0
    assert "No module named 'zipped_source'" in done.stdout + done.stderr
    assert "rows:" not in done.stdout
