# SPDX-License-Identifier: Apache-2.0
"""A query reads a stream, slower than it is published, and the publisher can say why it waits.

Needs a running daemon (``penstock up``), its directory in ``$PENSTOCK_DIR`` unless it is the
default one, and the extra ``spark``::

    python examples/spark_stream.py
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

import penstock
from penstock.spark_bridge import register, tuned_settings

CHANNEL = "aeron:udp?endpoint=127.0.0.1:20121|term-length=256k"
STREAM = 1001
MESSAGES = 20_000


def longest(held_ns: Mapping[str, int]) -> str:
    """Return the cause or culprit with the most time."""
    return max(held_ns, key=lambda name: held_ns[name], default="nobody")


class Figures(StreamingQueryListener):
    """Prints how far a query is behind, which session it held for how long, and what was lost."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        for source in event.progress.sources:
            found = json.loads(source.latestOffset or "{}")
            print(
                f"  behind by {found.get('lagMessages', 0)} messages, {found.get('lagBytes', 0)} "
                f"bytes; held {found.get('heldSession') or 'no session'} for "
                f"{found.get('heldMs', 0)} ms by {found.get('culprit') or 'nobody'}; "
                f"{found.get('lostBytes', 0)} bytes lost in {found.get('losses', 0)} gaps"
            )

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing is known yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing is new."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """All was said."""


def publish(sent: list[str]) -> None:
    """As fast as the query lets it."""
    with penstock.connect(name="example publisher") as client:
        publication = client.add_exclusive_publication(CHANNEL, STREAM)
        for number in range(MESSAGES):
            publication.send(b"%07d" % number, timeout_s=60.0)
            if number == MESSAGES * 3 // 4:
                pressure = publication.pressure()
                sent.append(
                    f"held for {pressure.total_ns / 1e9:.1f} s, most by "
                    f"{longest(pressure.blocked_by_ns)}: {longest(pressure.blocked_ns)}"
                )
        sent.append(f"published {MESSAGES}")


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {**tuned_settings(), "spark.master": "local[2]", "spark.ui.enabled": "false"}
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    figures = Figures()
    spark.streams.addListener(figures)

    numbers: list[int] = []

    def take(batch: DataFrame, batch_id: int) -> None:
        numbers.extend(int(row.value) for row in batch.select("value").collect())
        time.sleep(0.1)
        print(f"batch {batch_id}: {len(numbers)} messages so far")

    stream = (
        spark.readStream.format("penstock")
        .option("channel", CHANNEL)
        .option("streamId", STREAM)
        .option("subscription", "example")      # the daemon keeps this query's progress by name
        .option("startingOffsets", "earliest")
        .load()
    )
    with tempfile.TemporaryDirectory() as folder:
        query = stream.writeStream.foreachBatch(take).option("checkpointLocation", folder).start()
        sent: list[str] = []
        publisher = threading.Thread(target=publish, args=(sent,))
        publisher.start()
        while len(numbers) < MESSAGES and query.isActive:
            time.sleep(0.1)
        publisher.join()
        query.stop()
    spark.streams.removeListener(figures)
    print("\n".join(sent))
    assert numbers == list(range(MESSAGES)), "a message is missing, repeated or out of order"
    spark.stop()


if __name__ == "__main__":
    main()
