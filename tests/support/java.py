# SPDX-License-Identifier: Apache-2.0
"""Java for Spark: whether it is there, and JVMs that start quickly.

A JVM of Spark loads some 13,000 classes before it has a row.  ``build/java`` keeps the loaded
classes of each installation of Spark as HotSpot writes them down (a dynamic archive of class data
sharing), for all JVMs after the first.  A JVM whose class path or version differs from the
archive's ignores it.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

#: For ``pytestmark``; the fixture is in ``tests/conftest.py``.
needs_java = pytest.mark.usefixtures("java")

ROOT: Final = Path(__file__).parents[2]
TIMEOUT_S: Final = 600.0
# A small heap for a minute: the serial collector and one compiler are enough.
QUICK: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
#: A program that loads what most tests need: a session, Python tasks, a streaming query.
PROGRAM: Final = """
import tempfile
from pyspark import SparkContext
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.createDataFrame([(1,), (2,)], "n int").groupBy("n").count().count() == 2
with tempfile.TemporaryDirectory() as checkpoint:
    query = (
        spark.readStream.format("rate").load().writeStream.format("memory").queryName("rows")
        .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    )
    query.awaitTermination()
spark.stop()
gateway = SparkContext._gateway
gateway.shutdown()
gateway.proc.stdin.close()          # it ends with its input, and writes the archive
assert gateway.proc.wait() == 0
"""


def spark_home(python: str = sys.executable) -> Path:
    """The folder of PySpark of an interpreter."""
    if python == sys.executable:
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        return Path(spec.origin).parent
    (found,) = Path(python).parents[1].glob("lib/python*/site-packages/pyspark")
    return found


def archive_options(python: str = sys.executable) -> str:
    """Options of a JVM that has the archive of an interpreter's Spark; makes it if need be."""
    home = spark_home(python)
    java = shutil.which("java")
    assert java is not None
    made_of = hashlib.sha256()
    for path in (Path(java).resolve(), *sorted((home / "jars").iterdir())):
        made_of.update(f"{path} {path.stat().st_mtime_ns}".encode())
    folder = ROOT / "build" / "java" / hashlib.sha256(str(home).encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{made_of.hexdigest()[:16]}.jsa"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            for older in folder.glob("*.jsa"):
                older.unlink()
            _make(archive, python)
    return f"-XX:SharedArchiveFile={archive} -Xlog:cds=off"


def _make(archive: Path, python: str) -> None:
    fresh = archive.with_suffix(".new")
    options = f"{QUICK} -XX:ArchiveClassesAtExit={fresh} -Xlog:disable"
    subprocess.run(
        [python, "-c", PROGRAM], check=True, capture_output=True, timeout=TIMEOUT_S,
        env={**os.environ, "PYSPARK_PYTHON": python, "SPARK_SUBMIT_OPTS": options,
             "SPARK_LAUNCHER_OPTS": QUICK},
    )
    fresh.rename(archive)


def has_archive(pid: int) -> bool:
    """Whether a JVM has mapped an archive of ``build/java``."""
    return f"{ROOT}/build/java/" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")


def quick_java(python: str = sys.executable) -> dict[str, str]:
    """Environment of programs that start Spark with an interpreter: of spark-submit, and of the JVM
    that composes its command."""
    options = f"{QUICK} {archive_options(python)}"
    return {"SPARK_SUBMIT_OPTS": options, "SPARK_LAUNCHER_OPTS": QUICK}
