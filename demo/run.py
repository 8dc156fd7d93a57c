# SPDX-License-Identifier: Apache-2.0
"""Two daemons on loopback stand for two hosts.  One process replays 336 776 flight records over UDP
with loss in both directions.  On the other side a process receives them and a Spark Structured
Streaming query aggregates them, both from the daemon there, and what each of them counts must equal
what is counted directly, to the last row.  Exit status 0: it did."""

from __future__ import annotations

import argparse
import contextlib
import signal
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.live import Live
from rich.table import Table

from demo import flights
from demo.hosts import (
    Daemon,
    DemoError,
    Reporter,
    left_behind,
    scratch_directory,
    undisturbed_end,
)

STREAM = 2013
TIME_LIMIT_S = 300.0
SPARK_START_S = 300.0
REFRESH_S = 0.25
LINE_S = 2.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument("--loss", type=float, default=3.0, help="percent lost, both ways (3)")
    parser.add_argument("--rate", type=float, default=40_000, help="records a second (40000)")
    args = parser.parse_args()
    console = Console()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with scratch_directory() as scratch:
            here = Daemon(scratch / "publisher-host")
            with contextlib.ExitStack() as stack:
                stack.callback(here.stop)
                there = Daemon(
                    scratch / "receiver-host", "--impair", f"loss={args.loss:g}%,seed=13"
                )
                stack.callback(there.stop)
                with scratch_directory() as spark, undisturbed_end():
                    results, traffic = transfer(console, here, there, spark, rate=args.rate)
            files = left_behind(scratch)
            if files:
                raise DemoError(f"left behind: {', '.join(files)}")
        return 0 if verdict(console, *results, traffic, loss=args.loss) else 1
    except DemoError as error:
        console.print(f"demo: {error}", style="bold red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        return 130


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def transfer(
    console: Console, here: Daemon, there: Daemon, scratch: Path, *, rate: float
) -> tuple[tuple[Mapping[str, Any], Mapping[str, Any]], dict[str, int]]:
    """Runs publisher, receiver and query to their end: (what both received, what it took)."""
    deadline = time.monotonic() + TIME_LIMIT_S
    for daemon in (here, there):
        daemon.wait_ready(30.0)
    channel = f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
    where = [f"--dir={there.directory}", f"--channel={channel}", f"--stream={STREAM}"]
    with contextlib.ExitStack() as stack, undisturbed_end():
        query = Reporter("-m", "demo.query", *where, f"--scratch={scratch}")
        stack.callback(query.stop)
        with console.status("starting Spark"):
            query.wait_for("reading", SPARK_START_S)
        receiver = Reporter("-m", "demo.receiver", *where)
        stack.callback(receiver.stop)
        receiver.wait_for("listening", 30.0)
        publisher = Reporter("-m", "demo.publisher", f"--dir={here.directory}",
                             f"--channel={channel}", f"--stream={STREAM}", f"--rate={rate}")
        stack.callback(publisher.stop)
        history: list[tuple[float, int]] = []
        with contextlib.ExitStack() as screen:
            show = display(console, screen)
            processes = (publisher, receiver, query)
            over = [False]
            while not all(over):
                over = [process.is_over() for process in processes]    # or one failed
                if time.monotonic() > deadline:
                    raise DemoError(f"not finished after {TIME_LIMIT_S:g} s")
                history.append((time.monotonic(), int(receiver.values.get("records", 0))))
                numbers = progress(publisher.values, history[-8:], figures(here, there))
                numbers["records in Spark's answer"] = int(query.values.get("records", 0))
                show(numbers)
                time.sleep(REFRESH_S)
        results = receiver.wait_for("result", 5.0), query.wait_for("result", 5.0)
        return results, figures(here, there)


def free_port() -> int:
    """A UDP port of loopback that nobody has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def figures(here: Daemon, there: Daemon) -> dict[str, int]:
    """What the two daemons counted."""
    sent, received = here.counters(), there.counters()
    return {
        "bytes sent": sent.get("Bytes sent", 0),
        "NAKs sent by the receiver's host": received.get("NAKs sent", 0),
        "NAKs that reached the publisher's host": sent.get("NAKs received", 0),
        "retransmits": sent.get("Retransmits sent", 0),
        "bytes retransmitted": sent.get("Retransmitted bytes", 0),
    }


def progress(
    published: Mapping[str, Any], history: list[tuple[float, int]], traffic: Mapping[str, int]
) -> dict[str, int]:
    """What is shown while it runs: label to number."""
    (start, before), (end, now) = history[0], history[-1]
    rate = (now - before) / (end - start) if end > start else 0.0
    return {
        "records published": int(published.get("records", 0)),
        "records received": now,
        "records a second": round(rate),
        **traffic,
    }


def display(console: Console, stack: contextlib.ExitStack) -> Callable[[dict[str, int]], None]:
    """A table that renews itself on a terminal, a line now and then elsewhere."""
    if console.is_terminal:
        live = stack.enter_context(Live(console=console, auto_refresh=False, transient=True))
        return lambda numbers: live.update(table_of(numbers), refresh=True)
    due = 0.0

    def line(numbers: dict[str, int]) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + LINE_S
            print(", ".join(f"{label} {value:,}" for label, value in numbers.items()), flush=True)

    return line


def table_of(numbers: Mapping[str, int]) -> Table:
    table = Table(title="336 776 flight records over UDP", box=None, show_header=False)
    table.add_column(justify="right", min_width=12)
    table.add_column()
    for label, value in numbers.items():
        table.add_row(f"{value:,}", label)
    return table


def verdict(
    console: Console, result: Mapping[str, Any], answer: Mapping[str, Any],
    traffic: Mapping[str, int], *, loss: float,
) -> bool:
    """Prints the aggregates of the receiver, of Spark, and the direct one; do they agree?"""
    expected = flights.direct()
    table = Table(title="Departures and mean delay by carrier", box=None)
    for name in ("carrier", "departures", "mean delay, min", "Spark: departures", "mean delay",
                 "direct: departures", "mean delay"):
        table.add_column(name, justify="left" if name == "carrier" else "right")
    received, queried = by_code(result), by_code(answer)
    for direct in by_code(expected).values():
        cells = [*shown(received.get(direct.code)), *shown(queried.get(direct.code))]
        table.add_row(direct.code, *cells, *shown(direct))
    console.print(table)
    console.print(", ".join(f"{label} {value:,}" for label, value in traffic.items()))
    equal = dict(result) == expected and expected["records"] == flights.RECORDS
    same = by_code(answer) == by_code(expected) and answer["records"] == flights.RECORDS
    recovered = traffic["retransmits"] > 0 or loss == 0
    if not equal:
        console.print(
            f"DIFFERENT: {result['records']:,} of {expected['records']:,} records, "
            f"sha256 {result['sha256'][:12]} instead of {expected['sha256'][:12]}",
            style="bold red",
        )
    elif not same:
        console.print(
            f"DIFFERENT: Spark's aggregate of {answer['records']:,} records is not the direct one",
            style="bold red",
        )
    elif not recovered:
        console.print(f"{loss:g} % loss was requested, but nothing was lost", style="bold red")
    else:
        console.print(
            f"EQUAL: {result['records']:,} records in order, byte for byte "
            f"(sha256 {result['sha256'][:12]}), with {loss:g} % of datagrams lost both ways",
            style="bold green",
        )
        console.print(
            f"EQUAL: Spark's aggregate of {answer['records']:,} records is the direct one",
            style="bold green",
        )
    return equal and same and recovered


def by_code(result: Mapping[str, Any]) -> dict[str, flights.Carrier]:
    return {row["code"]: flights.Carrier(**row) for row in result["carriers"]}


def shown(carrier: flights.Carrier | None) -> tuple[str, str]:
    """Departures and mean delay as text."""
    if carrier is None or not carrier.departures:
        return "-", "-"
    return f"{carrier.departures:,}", f"{carrier.mean_delay:.3f}"
