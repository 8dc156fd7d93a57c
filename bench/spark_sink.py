# SPDX-License-Identifier: Apache-2.0
"""``python -m bench.spark_sink``: how fast rows get out of Spark, beside Spark's own Kafka sink.

The same rows go into a penstock stream that a group retains, and into a Kafka topic, all in memory.
A penstock task is done when the daemon has everything; a Kafka task when the broker has it.  The
contenders take turns.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import click
from pyspark.sql import DataFrame, SparkSession

from bench.contenders import BUILD
from bench.spark import STREAM, daemon, session, summary
from bench.spark_work import Work
from penstock._bench.processes import BenchError
from penstock.client import GroupControl

RESULTS: Final = BUILD / "spark_sink.json"
_TERM: Final = 512 * 1024 * 1024
_GROUP: Final = {
    "name": "bench", "channel": f"aeron:ipc?term-length={_TERM}", "stream_id": STREAM,
}


@attrs.frozen(kw_only=True)
class Sink:
    """A way to write the rows, and what is to be done before the next round."""

    name: str
    save: Callable[[DataFrame], None]
    clear: Callable[[], None] = lambda: None


def rows(spark: SparkSession, work: Work) -> DataFrame:
    """As many values as asked, made in the JVM."""
    return spark.range(0, work.records, 1, work.partitions).selectExpr(
        f"cast(rpad(lpad(cast(id as string), 12, '0'), {work.size}, '.') as binary) as value"
    )


@contextlib.contextmanager
def ours(directory: Path) -> Iterator[Sink]:
    """The penstock sink, and a group that takes what it publishes."""
    with GroupControl(directory=str(directory)) as control:
        control.open(**_GROUP, starting="earliest", expiry_ns=3600 * 10**9)

        def save(df: DataFrame) -> None:
            df.write.format("penstock").mode("append").options(
                channel=_GROUP["channel"], streamId=STREAM, daemonDir=str(directory)
            ).save()

        def clear() -> None:
            state = control.state(**_GROUP)
            control.acknowledge(**_GROUP, positions={
                (log.session_id, log.initial_term_id): log.end_position for log in state.logs
            })

        yield Sink(name="penstock", save=save, clear=clear)


@contextlib.contextmanager
def kafka(work: Work) -> Iterator[Sink]:
    """Spark's Kafka sink, and a broker for the length of the block."""
    from bench.kafka import broker

    with broker(partitions=work.partitions) as servers:
        def save(df: DataFrame) -> None:
            df.write.format("kafka").option("kafka.bootstrap.servers", servers).option(
                "topic", "rows"
            ).save()

        yield Sink(name="kafka", save=save)


def measure(
    spark: SparkSession, sinks: list[Sink], work: Work, rounds: int
) -> dict[str, list[float]]:
    """Rows a second of each, round by round, after one that does not count."""


    rates: dict[str, list[float]] = {one.name: [] for one in sinks}
    for number in range(rounds + 1):
        for one in sinks:
            begun = time.perf_counter()
            one.save(rows(spark, work))
            seconds = time.perf_counter() - begun
            one.clear()
            if number:
                rates[one.name].append(work.records / seconds)
                click.echo(
                    f"round {number}: {one.name:<10} {work.records / seconds:12,.0f} rows/s",
                    err=True,
                )
    return rates


@click.command()
@click.option("--records", type=click.IntRange(1), default=600_000, show_default=True)
@click.option("--size", type=click.IntRange(12), default=100, show_default=True)
@click.option("--partitions", type=click.IntRange(1), default=2, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--output", type=click.Path(path_type=Path), default=RESULTS)
def main(records: int, size: int, partitions: int, rounds: int, output: Path) -> None:
    """Writes the same rows with both in turn."""
    from bench.spark_kafka import connector

    if records * (size + 64) > _TERM // 4:
        raise BenchError(f"{records} records of {size} B do not fit in half a window")
    work = Work(records=records, size=size, partitions=partitions)
    with contextlib.ExitStack() as stack:
        sinks = [
            stack.enter_context(ours(stack.enter_context(daemon()))),
            stack.enter_context(kafka(work)),
        ]
        spark = session(work, jars=connector())
        stack.callback(spark.stop)
        found: dict[str, Any] = summary(measure(spark, sinks, work, rounds))
    found["ratios"]["kafka"]["goal"] = 1.5
    document = {"work": attrs.asdict(work), "load_average": os.getloadavg(), **found}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(document, indent=1))
    ratio = found["ratios"]["kafka"]
    click.echo(
        f"penstock / kafka: {ratio['of_medians']:.2f} of medians, "
        f"{ratio['median_of_rounds']:.2f} median of rounds (goal {ratio['goal']})"
    )


if __name__ == "__main__":
    main()
