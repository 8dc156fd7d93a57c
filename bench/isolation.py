# SPDX-License-Identifier: Apache-2.0
"""Measure whether readers notice that another reader of their stream stands still:
``python -m bench.isolation``.

Five readers with ``ps-sub-policy=independent`` read one stream that is published at a fixed rate.
In one half of each pair the fifth reader's process is stopped (SIGSTOP), in the other half it
reads. The benchmark counts the messages that each of the other four readers gets in bins of 100 ms.
The results are the ratios of the halves, as medians over the pairs: of the first percentile of the
bins, and of their median. ``--stop-s 60`` prolongs the stop to a minute.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from statistics import median, quantiles
from typing import Any, Final

import click

import penstock
from penstock._bench import runner
from penstock._bench.network import free_port, network
from penstock._bench.processes import BenchError, Process
from penstock._bench.worker_io import say

GOALS: Final = (0.9, 0.98)
READERS: Final = 4
BIN_S: Final = 0.1
_STREAM: Final = 1001
_START_S: Final = 60.0
_SETTINGS: Final = runner.Settings(term_length=1 << 20, window=512 * 1024)
#: Shortest time between a signal to the fifth reader and the measurement.
_SETTLE_S: Final = 0.5
#: Both halves begin when the stopped reader is more than this number of terms behind, or reads.
_TERMS_BEHIND: Final = 1.2
_HEADER: Final = 32
_IDLE_S: Final = 0.0005


# ---- processes -----------------------------------------------------------------------------------


def publish(client: penstock.Client, channel: str, rate: int, size: int) -> None:
    """Publish at a fixed rate until the standard input ends."""
    publication = client.add_exclusive_publication(channel, _STREAM)
    publication.wait_connected(_START_S)
    say("ready")
    sys.stdin.readline()
    message = bytes(size)
    began = time.monotonic()
    sent = 0
    while True:
        due = int((time.monotonic() - began) * rate)
        while sent < due and publication.offer(message) > 0:
            sent += 1
        time.sleep(_IDLE_S)


def read(client: penstock.Client, channel: str) -> None:
    """Read with several subscriptions. Each line of the standard input is a number of seconds; the
    answer has the messages of each bin of each subscription."""
    counts = [0] * READERS
    subscriptions = [client.add_subscription(channel, _STREAM) for _ in counts]

    def counter(number: int) -> Any:
        def on_message(_message: Any, _header: Any) -> None:
            counts[number] += 1
        return on_message

    readers = list(zip(subscriptions, map(counter, range(READERS)), strict=True))

    def run(end: float) -> None:
        while time.monotonic() < end:
            if not sum(subscription.poll(handler, 256) for subscription, handler in readers):
                time.sleep(_IDLE_S)

    say("ready")
    os.set_blocking(sys.stdin.fileno(), False)
    while True:
        run(time.monotonic() + 0.02)
        line = sys.stdin.readline()
        if not line:
            continue
        bins: list[int] = []
        began = time.monotonic()
        for number in range(int(float(line) / BIN_S)):
            counts[:] = [0] * READERS
            run(began + (number + 1) * BIN_S)
            bins += counts
        say("bins", messages=bins)


def stop(client: penstock.Client, channel: str) -> None:
    """Read; this is the process that is stopped and continued."""
    subscription = client.add_subscription(channel, _STREAM)
    say("ready")
    while True:
        if not subscription.poll(lambda _message, _header: None, 256):
            time.sleep(_IDLE_S)


# ---- measurement ---------------------------------------------------------------------------------


def low(bins: list[int]) -> float:
    return quantiles(bins, n=100)[0]


def settle_s(rate: int, size: int) -> float:
    """Return the time after which a reader that has stopped is more than a term behind."""
    frame = -(-(size + _HEADER) // _HEADER) * _HEADER
    return max(_SETTLE_S, _TERMS_BEHIND * _SETTINGS.term_length / (rate * frame))


def measure(
    medium: str, pairs: int, seconds: float, stop_s: float, rate: int, size: int
) -> list[list[float]]:
    """Return, for each pair, both ratios: with a stopped reader to without.

    :param seconds: measured time of the half in which all readers read.
    :param stop_s: measured time of the half in which the fifth reader is stopped.
    """
    found: list[list[float]] = []
    udp = medium == "udp"
    with (
        network(veth=False) as where,
        runner.hosts(_SETTINGS, where, count=2 if udp else 1) as hosts,
        contextlib.ExitStack() as stack,
    ):
        channel = f"aeron:udp?endpoint={where.b.address}:{free_port()}|" if udp else "aeron:ipc?"
        channel += "ps-sub-policy=independent"
        running: dict[str, Process] = {}
        for role in ("read", "stop", "publish"):
            directory = hosts.near if role == "publish" else hosts.far
            running[role] = stack.enter_context(Process([
                sys.executable, "-m", "bench.isolation", "--role", role, "--rate", str(rate),
                "--size", str(size), str(directory), channel,
            ]))
        for process in running.values():
            process.expect("ready", _START_S)
        running["publish"].say("go")
        for number in range(pairs):
            bins = {}
            for stands in ((False, True), (True, False))[number % 2]:
                os.kill(running["stop"].pid, signal.SIGSTOP if stands else signal.SIGCONT)
                time.sleep(settle_s(rate, size))
                span = stop_s if stands else seconds
                running["read"].say(str(span))
                bins[stands] = running["read"].expect("bins", span + _START_S)["messages"]
            os.kill(running["stop"].pid, signal.SIGCONT)
            found.append([
                low(bins[True]) / max(low(bins[False]), 1), median(bins[True]) / median(bins[False])
            ])
    return found


@click.command()
@click.option("--pairs", default=5, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=10.0, show_default=True, type=click.FloatRange(1.0),
              help="Measured time of each half of a pair.")
@click.option("--stop-s", default=None, type=click.FloatRange(1.0),
              help="Measured time of the half in which the fifth reader is stopped.  "
                   "[default: --seconds]")
@click.option("--rate", default=10_000, show_default=True, type=click.IntRange(100),
              help="Messages a second.")
@click.option("--size", default=200, show_default=True, type=click.IntRange(1, 1000),
              help="Bytes of a message.")
@click.option("--role", type=click.Choice(["publish", "read", "stop"]), hidden=True)
@click.argument("directory", default="")
@click.argument("channel", default="")
def main(
    pairs: int, seconds: float, stop_s: float | None, rate: int, size: int, role: str | None,
    directory: str, channel: str,
) -> None:
    """Print how the other readers' rates change while one reader stands still."""
    if role:
        with penstock.connect(directory) as client:
            if role == "publish":
                publish(client, channel, rate, size)
            else:
                (read if role == "read" else stop)(client, channel)
        return
    stop_s = stop_s or seconds
    for medium in ("ipc", "udp"):
        rows = measure(medium, pairs, seconds, stop_s, rate, size)
        click.echo(
            f"{medium}  first percentile {median(row[0] for row in rows):.3f} (goal {GOALS[0]})"
            f"  median {median(row[1] for row in rows):.3f} (goal {GOALS[1]})"
        )
    click.echo(
        f"pairs {pairs}, stopped for {stop_s:g} s, {rate} messages a second, "
        f"load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    try:
        main()
    except (BenchError, subprocess.SubprocessError) as error:
        raise SystemExit(str(error)) from error
