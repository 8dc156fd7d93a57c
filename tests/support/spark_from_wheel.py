# SPDX-License-Identifier: Apache-2.0
"""What the pages and examples show to a new user of Spark, for an environment that has the wheel
and its extra only.

Spark finds the source by itself; nothing is imported from the source tree.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import penstock
from penstock.spark_bridge import read_local, tuned_settings

WAIT_S = 120.0
LOCAL = {
    "channel": "aeron:udp?endpoint=127.0.0.1:20151|term-length=1m", "streamId": "31",
    "subscription": "near", "startingOffsets": "earliest",
}
MESSAGES = [b"message %d" % number for number in range(2000)]


def blocks(root: Path, page: str) -> list[str]:
    text = (root / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)


def tutorial(root: Path) -> None:
    """Both programs of the page about reading, in one process."""
    query, publish, _chain = blocks(root, "spark.md")
    names: dict[str, Any] = {}
    exec(query.replace("query.awaitTermination()", ""), names)
    exec(publish.replace("100_001", "20_001"), {})
    names["query"].processAllAvailable()
    names["query"].stop()
    names["spark"].stop()


def whole_seconds(first: Any) -> int:
    """Return the seconds of which the chain's first query has ended the batches."""
    progress = first.lastProgress
    return int(progress["sources"][0]["endOffset"] or 0) if progress is not None else 0


def chain(root: Path) -> None:
    """Two queries; the last one has each number of the first once. Of the batch within which the
    first was stopped, it has the parts that were committed. On a slow machine 500 numbers can be
    there before a batch has ended, so the first query is stopped when its batches have them."""
    *_tutorial, program = blocks(root, "spark.md")
    until_500, stop, rest = program.partition("first.stop()\n")
    names: dict[str, Any] = {}
    exec(until_500, names)
    while whole_seconds(names["first"]) < 5:
        names["first"].awaitTermination(1)
    exec(stop + rest, names)
    spark = names["spark"]
    numbers = sorted(row.number for row in spark.table("numbers").collect())
    assert len(numbers) >= 500
    assert len(numbers) == len(set(numbers))
    seconds = whole_seconds(names["first"])
    whole = [number for number in numbers if number < 100 * seconds]
    assert len(whole) >= 500
    assert whole == list(range(100 * seconds))
    spark.stop()


def sink(root: Path) -> None:
    exec(blocks(root, "spark-sink.md")[0], {})


def stream_example(root: Path) -> None:
    runpy.run_path(str(root / "examples" / "spark_stream.py"), run_name="__main__")


def sink_example(root: Path) -> None:
    runpy.run_path(str(root / "examples" / "spark_sink.py"), run_name="__main__")


def notebook(root: Path) -> None:
    cells = json.loads((root / "examples" / "spark.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)


def locality(_root: Path) -> None:
    """``read_local`` as a stream, and then as a batch."""
    spark = SparkSession.builder.master("local[2]").config(map=tuned_settings()).getOrCreate()
    more = {"locality": "barrier", "minPartitions": "2"}
    rows: list[bytes] = []
    with penstock.connect() as client, tempfile.TemporaryDirectory() as checkpoint:
        query = (
            read_local(spark.readStream.format("penstock").options(**LOCAL, **more).load())
            .writeStream.foreachBatch(
                lambda df, _batch: rows.extend(bytes(row.value) for row in df.collect())
            )
            .option("checkpointLocation", checkpoint).start()
        )
        publication = client.add_exclusive_publication(LOCAL["channel"], 31)
        if not publication.wait_connected(WAIT_S):
            raise SystemExit("the query does not join the stream")
        for message in MESSAGES[:1000]:
            publication.send(message, WAIT_S)
        query.processAllAvailable()
        query.stop()
        for message in MESSAGES[1000:]:
            publication.send(message, WAIT_S)
        unread: set[bytes] = set()
        deadline = time.monotonic() + WAIT_S
        while not unread >= set(MESSAGES[1000:]):
            assert time.monotonic() < deadline, f"{len(unread)} messages can be read"
            near = read_local(spark.read.format("penstock").options(**LOCAL, **more).load())
            unread = {bytes(row.value) for row in near.collect()}
    assert sorted(rows) == sorted(MESSAGES[:1000])
    spark.stop()


PARTS = {
    part.__name__: part
    for part in (tutorial, chain, sink, stream_example, sink_example, notebook, locality)
}


def show(root: str, part: str) -> None:
    assert not any(Path(folder).resolve() == Path(root) for folder in sys.path if folder)
    PARTS[part](Path(root))
