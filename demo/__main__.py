# SPDX-License-Identifier: Apache-2.0
"""Two daemons on loopback stand for two hosts.  One process replays 336 776 flight records over UDP
with loss in both directions, another receives them through its own daemon, and what it counts must
equal what is counted directly, to the last row.  Exit status 0: it did."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from rich.console import Console
from rich.live import Live
from rich.table import Table

from demo import flights
from demo.hosts import Daemon, DemoError, Reporter, left_behind, scratch_directory

STREAM = 2013
TIME_LIMIT_S = 100.0
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
                result, traffic = transfer(console, here, there, rate=args.rate)
            files = left_behind(scratch)
            if files:
                raise DemoError(f"left behind: {', '.join(files)}")
        return 0 if verdict(console, result, traffic, loss=args.loss) else 1
    except DemoError as error:
        console.print(f"demo: {error}", style="bold red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        return 130


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


def transfer(
    console: Console, here: Daemon, there: Daemon, *, rate: float
) -> tuple[Mapping[str, Any], dict[str, int]]:
    """Runs publisher and receiver to their end: (what was received, what it took)."""
    deadline = time.monotonic() + TIME_LIMIT_S
    for daemon in (here, there):
        daemon.wait_ready(30.0)
    with contextlib.ExitStack() as stack:
        receiver = Reporter("-m", "demo.receiver", f"--dir={there.directory}",
                            "--channel=aeron:udp?endpoint=127.0.0.1:0", f"--stream={STREAM}")
        stack.callback(receiver.stop)
        address = receiver.wait_for("listening", 30.0)
        publisher = Reporter("-m", "demo.publisher", f"--dir={here.directory}",
                             f"--channel=aeron:udp?endpoint={address}", f"--stream={STREAM}",
                             f"--rate={rate}")
        stack.callback(publisher.stop)
        history: list[tuple[float, int]] = []
        with contextlib.ExitStack() as screen:
            show = display(console, screen)
            while not (publisher.is_over() and receiver.is_over()):
                if time.monotonic() > deadline:
                    raise DemoError(f"not finished after {TIME_LIMIT_S:g} s")
                history.append((time.monotonic(), int(receiver.values.get("records", 0))))
                show(progress(publisher.values, history[-8:], figures(here, there)))
                time.sleep(REFRESH_S)
        return receiver.wait_for("result", 5.0), figures(here, there)


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
    console: Console, result: Mapping[str, Any], traffic: Mapping[str, int], *, loss: float
) -> bool:
    """Prints both aggregates; do they agree?"""
    expected = flights.direct()
    table = Table(title="Departures and mean delay by carrier", box=None)
    for name in ("carrier", "departures", "mean delay, min", "direct: departures", "mean delay"):
        table.add_column(name, justify="left" if name == "carrier" else "right")
    received = {row["code"]: row for row in result["carriers"]}
    for row in expected["carriers"]:
        found = flights.Carrier(**received[row["code"]]) if row["code"] in received else None
        direct = flights.Carrier(**row)
        table.add_row(
            direct.code,
            f"{found.departures:,}" if found else "-",
            f"{found.mean_delay:.3f}" if found else "-",
            f"{direct.departures:,}",
            f"{direct.mean_delay:.3f}",
        )
    console.print(table)
    console.print(", ".join(f"{label} {value:,}" for label, value in traffic.items()))
    equal = dict(result) == expected and expected["records"] == flights.RECORDS
    recovered = traffic["retransmits"] > 0 or loss == 0
    if not equal:
        console.print(
            f"DIFFERENT: {result['records']:,} of {expected['records']:,} records, "
            f"sha256 {result['sha256'][:12]} instead of {expected['sha256'][:12]}",
            style="bold red",
        )
    elif not recovered:
        console.print(f"{loss:g} % loss was asked for, but nothing was lost", style="bold red")
    else:
        console.print(
            f"EQUAL: {result['records']:,} records in order, byte for byte "
            f"(sha256 {result['sha256'][:12]}), with {loss:g} % of datagrams lost both ways",
            style="bold green",
        )
    return equal and recovered


if __name__ == "__main__":
    sys.exit(main())
