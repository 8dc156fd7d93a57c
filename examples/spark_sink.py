# SPDX-License-Identifier: Apache-2.0
"""A query publishes, and a program that knows nothing of Spark reads whole parts of batches.

Needs a running daemon (``penstock up``), its directory in ``$PENSTOCK_DIR`` unless it is the
default one, and the extra ``spark``::

    python examples/spark_sink.py
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

import penstock
from penstock.spark_bridge import committed, publish, register, tuned_settings

CHANNEL = "aeron:udp?endpoint=127.0.0.1:20122|term-length=256k"
STREAM = 1002


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {**tuned_settings(), "spark.master": "local[2]", "spark.ui.enabled": "false"}
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    df = spark.range(0, 1000, 1, 2).selectExpr("cast(id * id as string) as value")

    with penstock.connect(name="example receiver") as client:
        subscription = client.add_subscription(CHANNEL, STREAM)

        # A batch; a streaming query is the same with writeStream and a checkpoint.
        (
            df.write.format("penstock").mode("append")
            .option("channel", CHANNEL).option("streamId", STREAM).option("timeout", "30s")
            .save()
        )
        parts = committed(subscription, timeout_s=30.0)
        received = [part for part, _ in zip(parts, range(2), strict=False)]
        for part in received:
            print(f"partition {part.partition}: {len(part.messages)} messages")
        values = sorted(int(message) for part in received for message in part.messages)
        assert values == [number * number for number in range(1000)]

        # The same as a step of a query, which tells what each task sent.
        counts = publish(df, channel=CHANNEL, stream_id=STREAM, timeout="30s").collect()
        for row in counts:
            print(f"{row.host}, partition {row.partition}: {row.messages} messages")
        again = [next(parts), next(parts)]
        assert sum(len(part.messages) for part in again) == 1000
        assert parts.statistics.repeats == 0    # another job: nothing was repeated
    spark.stop()


if __name__ == "__main__":
    main()
