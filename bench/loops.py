# SPDX-License-Identifier: Apache-2.0
"""Compare round trips of the synchronous client with those under asyncio and trio:
``python -m bench.loops``.

Two processes exchange messages over IPC. The rounds of the three clients alternate, so that all
meet the same load. The result is the median of the ratios of the medians; its bound is 2.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from statistics import median
from typing import Final

import anyio
import click

import penstock

BOUND: Final = 2.0
PING: Final = 1
PONG: Final = 2
LOOPS: Final = ("asyncio", "trio")
_WAIT_S: Final = 60.0
_CHANNEL: Final = "aeron:ipc"


def answer(directory: str) -> None:
    """Return each message, until the publisher has ended."""
    with penstock.connect(directory) as client:
        subscription = client.add_subscription(_CHANNEL, PING)
        publication = client.add_publication(_CHANNEL, PONG)
        for message in subscription.messages(_WAIT_S, until_end=True):
            publication.send(message, _WAIT_S)


async def answer_in_loop(directory: str) -> None:
    """Return each message, until the publisher has ended."""
    async with penstock.open_client(directory) as client:
        subscription = await client.add_subscription(_CHANNEL, PING)
        publication = await client.add_publication(_CHANNEL, PONG)
        async for message in subscription.messages(_WAIT_S, until_end=True):
            await publication.send(message, _WAIT_S)


def ask(directory: str, count: int) -> list[int]:
    """Return the round trips in nanoseconds."""
    times = []
    with penstock.connect(directory) as client:
        subscription = client.add_subscription(_CHANNEL, PONG)
        publication = client.add_publication(_CHANNEL, PING)
        for _ in range(count):
            began = time.perf_counter_ns()
            publication.send(b"x" * 32, _WAIT_S)
            subscription.recv(_WAIT_S)
            times.append(time.perf_counter_ns() - began)
    return times


async def ask_in_loop(directory: str, count: int) -> list[int]:
    """Return the round trips in nanoseconds."""
    times = []
    async with penstock.open_client(directory) as client:
        subscription = await client.add_subscription(_CHANNEL, PONG)
        publication = await client.add_publication(_CHANNEL, PING)
        for _ in range(count):
            began = time.perf_counter_ns()
            await publication.send(b"x" * 32, _WAIT_S)
            await subscription.recv(_WAIT_S)
            times.append(time.perf_counter_ns() - began)
    return times


def p50_us(directory: str, loop: str, count: int) -> float:
    """Measure one round of a client; the first tenth of the round trips does not count."""
    peer = subprocess.Popen([sys.executable, "-m", "bench.loops", "--peer", loop, directory])
    try:
        if loop == "sync":
            times = ask(directory, count)
        else:
            times = anyio.run(ask_in_loop, directory, count, backend=loop)
        peer.wait(_WAIT_S)
    finally:
        peer.kill()
        peer.wait()
    return median(times[count // 10:]) / 1e3


@click.command()
@click.option("--rounds", default=11, show_default=True, type=click.IntRange(1))
@click.option("--count", default=3000, show_default=True, type=click.IntRange(10))
@click.option("--peer", default="", hidden=True)
@click.argument("directory", default="")
def main(rounds: int, count: int, peer: str, directory: str) -> None:
    """Print the round trips of each client, and the ratios to the synchronous one."""
    if peer:
        if peer == "sync":
            answer(directory)
        else:
            anyio.run(answer_in_loop, directory, backend=peer)
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        daemon = [sys.executable, "-m", "penstock"]
        subprocess.run([*daemon, "up", "--dir", f"{place}/d"], check=True, capture_output=True)
        try:
            found = [
                {loop: p50_us(f"{place}/d", loop, count) for loop in ("sync", *LOOPS)}
                for _ in range(rounds)
            ]
        finally:
            subprocess.run([*daemon, "down", "--dir", f"{place}/d"], check=True,
                           capture_output=True)
    for loop in ("sync", *LOOPS):
        ratio = median(row[loop] / row["sync"] for row in found)
        print(f"{loop:8} p50 {median(row[loop] for row in found):8.1f} us  ratio {ratio:.2f}"
              + ("" if loop == "sync" else f"  bound {BOUND:g}"))
    print(f"rounds {rounds}, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
