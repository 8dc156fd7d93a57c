# SPDX-License-Identifier: Apache-2.0
"""Aggregates the flight records in Spark, from the stream that the daemon of its host receives.

A Structured Streaming query reads the stream as a consumer group of that daemon: what it has not
acknowledged stays in the log, and holds the publisher if need be.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from demo import flights
from penstock.client import GroupControl

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SUBSCRIPTION = "flights"
# Spark gives a Python worker 10 s to connect, and no setting changes that.
LATE_WORKER = "Python worker failed to connect back"
STARTS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--channel", required=True)
    parser.add_argument("--stream", type=int, required=True)
    parser.add_argument("--scratch", required=True)
    args = parser.parse_args()
    # Reports are JSON; whatever else this process and Spark say goes to a file.
    out = os.fdopen(os.dup(1), "w")
    log = open(os.path.join(args.scratch, "log"), "w")  # noqa: SIM115
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)

    def report(values: dict[str, Any]) -> None:
        print(json.dumps(values), file=out, flush=True)

    try:
        aggregate(args.dir, args.channel, args.stream, args.scratch, report)
    except Exception as error:
        report({"failed": " ".join(str(error).split())[:600]})
        raise


def aggregate(directory: str, channel: str, stream: int, scratch: str, report: Any) -> None:
    """Report after each batch, and report the result when all records have arrived."""
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as f

    from penstock.spark_bridge import register, tuned_settings

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("penstock demo")
    settings = {
        **tuned_settings(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "700m",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.local.dir": scratch,
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)

    header = flights.header()
    fields = f.split(f.col("value").cast("string"), ",")
    records = (
        spark.readStream.format("penstock")
        .option("daemonDir", directory)
        .option("channel", channel)
        .option("streamId", stream)
        .option("subscription", SUBSCRIPTION)
        .option("startingOffsets", "earliest")
        .load()
        .where(f.col("value") != f.lit(b",".join(header)))
        .select(
            fields[header.index(b"carrier")].alias("code"),
            fields[header.index(b"dep_delay")].alias("delay"),
        )
    )
    by_carrier = records.groupBy("code").agg(
        f.count("*").alias("records"),
        f.count_if(f.col("delay") != "NA").alias("departures"),
        f.sum(f.when(f.col("delay") != "NA", f.col("delay").cast("int"))).alias("delay_minutes"),
    )
    finished = threading.Event()

    def take(table: DataFrame, batch: int) -> None:
        rows = table.collect()
        count = sum(row.records for row in rows)
        report({"records": count, "batches": batch + 1})
        if count >= flights.RECORDS:
            carriers = [
                {"code": r.code, "departures": r.departures, "delay_minutes": r.delay_minutes}
                for r in sorted(rows, key=lambda row: str(row.code))
            ]
            report({"result": {"records": count, "carriers": carriers}})
            finished.set()

    query = started(
        by_carrier.writeStream.outputMode("complete").foreachBatch(take)
        .option("checkpointLocation", f"{scratch}/checkpoint")
    )
    report({"reading": True})
    while not finished.wait(0.2):
        if query.exception() is not None:
            raise query.exception()  # type: ignore[misc]
    query.stop()
    spark.stop()
    with GroupControl(directory=directory) as control:  # else it waits for the query's return
        control.close_group(name=SUBSCRIPTION, channel=channel, stream_id=stream)


def started(writer: DataStreamWriter) -> StreamingQuery:
    """The query, when its group is there: what is published from now on is read.  It starts again
    when a busy machine took too long over its Python worker: it has read nothing by then."""
    from pyspark.errors import StreamingQueryException

    for left in reversed(range(STARTS)):
        query = writer.start()
        try:
            query.processAllAvailable()
            break
        except StreamingQueryException as error:
            if left == 0 or LATE_WORKER not in str(error):
                raise
    return query


if __name__ == "__main__":
    main()
