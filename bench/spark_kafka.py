# SPDX-License-Identifier: Apache-2.0
"""Spark's Kafka source at the same records: a broker on loopback, a partition for each task."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from bench.kafka import broker, connector_jars
from bench.spark_work import Contender, Work

TOPIC: Final = "records"
#: More at once than by default, which was a little slower here.
_CONSUMER: Final = {
    "kafka.max.partition.fetch.bytes": str(16 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.max.poll.records": "10000",
}


def connector() -> str:
    """For ``spark.jars``."""
    return connector_jars()


@contextlib.contextmanager
def filled(work: Work, payload: Callable[[int, int], bytes]) -> Iterator[Contender]:
    """A broker for the length of the block; the topic is filled when it is loaded first."""
    with broker(partitions=work.partitions) as servers:
        full: list[bool] = []

        def load(spark: SparkSession) -> DataFrame:
            if not full:
                _fill(spark, servers, work, payload)
                full.append(True)
            return (
                spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
                .option("subscribe", TOPIC).options(**_CONSUMER).load()
            )

        yield Contender(name="kafka", load=load)


def _fill(
    spark: SparkSession, servers: str, work: Work, payload: Callable[[int, int], bytes]
) -> None:
    """The records of the penstock log: a thousand of them, again and again."""
    block = [(number, payload(number, work.size)) for number in range(1000)]
    table = spark.createDataFrame(block, "place int, value binary")
    (
        spark.range(0, work.records, 1, work.partitions).selectExpr("id % 1000 as place", "id")
        .join(table, "place").selectExpr("value", f"cast(id % {work.partitions} as int) partition")
        .write.format("kafka").option("kafka.bootstrap.servers", servers)
        .option("topic", TOPIC).option("kafka.linger.ms", "20").save()
    )
