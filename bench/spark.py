# SPDX-License-Identifier: Apache-2.0
"""``python -m bench.spark``: how fast records get into Spark, beside what a Python source can give
at best, and beside Spark's own Kafka source.

The same records lie in a penstock log and in a Kafka topic, all in memory.  Each contender reads
them whole, with all its columns, into a sink that does nothing; the contenders take turns, in all
orders, so that what else the machine does meets them all.  Before each turn Spark's JVM collects
its garbage, which is then nobody's.  Beside the rate, each turn has its CPU time: that of this
process, Spark, its workers, the daemon and the broker together.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

import attrs
import click
import psutil
from pyspark.sql import DataFrame, SparkSession

import penstock
from bench.contenders import BUILD, ROOT
from bench.spark_memory import MemorySource
from bench.spark_work import Contender, Work
from penstock._bench.processes import BenchError
from penstock.client import GroupControl
from penstock.spark_bridge import register, tuned_settings

RESULTS: Final = BUILD / "spark.json"
STREAM: Final = 1001
SUBSCRIPTION: Final = "bench"
_START_S: Final = 30.0
_TERM: Final = 512 * 1024 * 1024
_WARM: Final = 3        # rounds that do not count
_GOALS: Final = {"memory": 0.95, "kafka": 3.0}


# ---- set-up --------------------------------------------------------------------------------------


def session(work: Work, *, jars: str = "", tuned: bool = True) -> SparkSession:
    """Spark with a slot for each partition."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    )
    settings = {
        "spark.master": f"local[{work.partitions}]", "spark.ui.enabled": "false",
        "spark.driver.memory": "1g", "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR", "spark.python.authenticate.socketTimeout": "60s",
        **(tuned_settings() if tuned else {}), **({"spark.jars": jars} if jars else {}),
    }  # fmt: skip
    builder = SparkSession.builder.appName("penstock-bench")
    for key, value in settings.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    register(made)
    made.dataSource.register(MemorySource)
    return made


@contextlib.contextmanager
def daemon() -> Iterator[Path]:
    """A daemon for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir="/dev/shm") as parent:
        directory = Path(parent) / "d"
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "daemon", "--dir", str(directory)],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        try:
            deadline = time.monotonic() + _START_S
            while not (directory / "groups.sock").exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise BenchError(f"the daemon does not start: {process.communicate()[1]}")
                time.sleep(0.05)
            yield directory
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def retained(directory: Path, work: Work) -> Iterator[dict[str, str]]:
    """The records in a log that a group retains: the options to read them with."""
    channel = f"aeron:ipc?term-length={_TERM}"
    with GroupControl(directory=str(directory)) as control, penstock.connect(directory) as client:
        group = {"name": SUBSCRIPTION, "channel": channel, "stream_id": STREAM}
        control.open(**group, starting="earliest", expiry_ns=3600 * 10**9)
        publication = client.add_publication(channel, STREAM)
        if not publication.wait_connected(_START_S):
            raise BenchError("the group does not join the stream")
        sent = 0
        block = [payload(n, work.size) for n in range(1000)]
        while sent < work.records:
            accepted = publication.offer_batch(block[: work.records - sent]).accepted
            if not accepted:
                (state,) = control.groups()
                if any(log.end_position - log.committed >= log.window_bytes // 2
                       for log in state.logs):
                    raise BenchError(
                        f"{work.records} records of {work.size} B do not fit in half a window"
                    )
            sent += accepted
        yield {
            "channel": channel, "streamId": str(STREAM), "subscription": SUBSCRIPTION,
            "daemonDir": str(directory), "startingOffsets": "earliest",
            "minPartitions": str(work.partitions),
        }


def payload(number: int, size: int) -> bytes:
    """What record ``number`` holds."""
    return (b"%012d" % number).ljust(size, b".")[:size]


def ours(options: dict[str, str]) -> list[Contender]:
    """The penstock source and the ceiling of Python sources."""
    def reads(kind: str) -> Callable[[SparkSession], DataFrame]:
        return lambda spark: spark.read.format(kind).options(**options).load()

    return [
        Contender(name="penstock", load=reads("penstock")),
        Contender(name="memory", load=reads("penstock-memory")),
    ]


# ---- measuring -----------------------------------------------------------------------------------


def cpu_s() -> float:
    """CPU time of this process and of all that it started, also of what has ended since."""
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])       # its own, and of children that ended
    return total


def read_all(df: DataFrame) -> tuple[float, float]:
    """Seconds to read everything into nothing, and seconds of CPU time."""
    df.sparkSession._jvm.System.gc()
    cpu, start = cpu_s(), time.perf_counter()
    df.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - start, cpu_s() - cpu


@attrs.frozen
class Turns:
    """What was measured, by contender and round."""

    rates: dict[str, list[float]]
    cpu_ns: dict[str, list[float]]      # of a record


def measure(
    spark: SparkSession, contenders: list[Contender], work: Work, rounds: int
) -> Turns:
    """Records a second and CPU time a record of each contender, round by round.  Some rounds before
    do not count: the JVM compiles, and each worker fills its memory."""
    found = Turns({one.name: [] for one in contenders}, {one.name: [] for one in contenders})
    for one in contenders:
        if (count := one.load(spark).count()) != work.records:
            raise BenchError(f"{one.name} gave {count} of {work.records} records")
    orders = itertools.cycle(itertools.permutations(contenders))
    for number in range(-_WARM, rounds):
        for one in next(orders):
            seconds, cpu = read_all(one.load(spark))
            if number >= 0:
                found.rates[one.name].append(work.records / seconds)
                found.cpu_ns[one.name].append(cpu / work.records * 1e9)
                click.echo(
                    f"round {number + 1}: {one.name:<10} {work.records / seconds:12,.0f} "
                    f"records/s {cpu / work.records * 1e9:8,.0f} ns of CPU time a record",
                    err=True,
                )
    return found


def summary(
    rates: dict[str, list[float]], cpu_ns: dict[str, list[float]] | None = None
) -> dict[str, Any]:
    """Medians, and ours over each of the others: of the medians, and the median of the rounds."""
    middle = {name: median(values) for name, values in rates.items()}
    cpu = {name: median(values) for name, values in (cpu_ns or {}).items()}
    ratios = {}
    for name, values in rates.items():
        if name != "penstock":
            ratios[name] = {
                "of_medians": middle["penstock"] / middle[name],
                "median_of_rounds": median(
                    a / b for a, b in zip(rates["penstock"], values, strict=True)
                ),
                "goal": _GOALS.get(name),
            }
    return {"rates": rates, "medians": middle, "cpu_ns_a_record": cpu, "ratios": ratios}


@click.command()
@click.option("--records", type=click.IntRange(1), default=600_000, show_default=True)
@click.option("--size", type=click.IntRange(1), default=100, show_default=True)
@click.option("--partitions", type=click.IntRange(1), default=2, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=10, show_default=True)
@click.option("--kafka/--no-kafka", default=False, help="Spark's Kafka source, too.")
@click.option("--output", type=click.Path(path_type=Path), default=RESULTS)
def main(
    records: int, size: int, partitions: int, rounds: int, kafka: bool, output: Path
) -> None:
    """Reads the same records with everyone in turn."""
    work = Work(records=records, size=size, partitions=partitions)
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(daemon())
        contenders = ours(stack.enter_context(retained(directory, work)))
        jars = ""
        if kafka:
            from bench.spark_kafka import connector, filled

            jars = connector()
            contenders.append(stack.enter_context(filled(work, payload)))
        spark = session(work, jars=jars)
        stack.callback(spark.stop)
        turns = measure(spark, contenders, work, rounds)
        found = summary(turns.rates, turns.cpu_ns)
    document = {"work": attrs.asdict(work), "load_average": os.getloadavg(), **found}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(document, indent=1))
    for name, cpu in found["cpu_ns_a_record"].items():
        click.echo(f"{name}: {cpu:,.0f} ns of CPU time a record, median of {rounds} rounds")
    for name, ratio in found["ratios"].items():
        click.echo(
            f"penstock / {name}: {ratio['of_medians']:.2f} of medians, "
            f"{ratio['median_of_rounds']:.2f} median of rounds (goal {ratio['goal']})"
        )


if __name__ == "__main__":
    main()
