# SPDX-License-Identifier: Apache-2.0
"""Measure a daemon that strangers flood with SETUPs: ``python -m bench.flood``.

A process sends SETUPs of sessions that nobody has to a subscription of a daemon on loopback, from
one address or from many. Meanwhile a client adds publications, and sends single messages on another
stream of the same daemon. The benchmark measures the time of each call and of each message; it also
measures messages before the flood. After the flood, the benchmark waits until the images of the
flood are gone, and then measures the daemon's memory and files.
"""

from __future__ import annotations

import os
import resource
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from statistics import quantiles
from typing import Final

import attrs
import click
import psutil

import penstock
from penstock._bench import runner
from penstock._bench.network import free_port, network
from penstock._bench.processes import BenchError, Process
from penstock._bench.worker_io import say

GOAL_MS: Final = 100.0
CALLS: Final = 100
#: Messages of the healthy stream between two calls.
BEATS: Final = 5
_STREAM: Final = 1001
_START_S: Final = 60.0
#: Longer than the images of the flood can stay after its end.
_GONE_S: Final = 90.0
_MIB: Final = 1 << 20
#: The flooder's addresses are in 127.1.0.0/16, 250 in each of its networks of 256.
_MOST_ADDRESSES: Final = 250 * 256
_TABLES: Final = {
    "timeouts": {"image_liveness_timeout_ns": "4s", "image_linger_ns": "1s"},
}
_SETTINGS: Final = runner.Settings(term_length=64 * 1024)


# ---- the flooder ---------------------------------------------------------------------------------


def setup_frame(session_id: int) -> bytes:
    """Return a SETUP of a stream with terms of 1 GiB."""
    return struct.pack(
        "<iBBHiiiiiiii", 40, 0, 0, 5, 0, session_id, _STREAM, 0, 0, 1 << 30, 1408, 0
    )


def _sockets(addresses: int) -> list[socket.socket]:
    made = []
    for number in range(addresses):
        each = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        each.bind((f"127.1.{number // 250}.{number % 250 + 1}", 0))
        made.append(each)
    return made


def flood(port: int, addresses: int, rate: int, seconds: float) -> None:
    """Send SETUPs at ``rate`` a second, each of another session."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    sockets = _sockets(addresses)
    say("ready")
    sys.stdin.readline()
    began = time.monotonic()
    sent = 0
    while (elapsed := time.monotonic() - began) < seconds:
        for _ in range(int(elapsed * rate) - sent):
            sockets[sent % addresses].sendto(setup_frame(sent + 1), ("127.0.0.1", port))
            sent += 1
        time.sleep(0.002)
    say("sent", count=sent, seconds=time.monotonic() - began)


# ---- measurement ---------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Remains:
    """What a daemon has: memory, images, and bytes of its files that take memory."""

    rss_mib: float
    images: int
    files_mib: float

    @classmethod
    def of(cls, pid: int, directory: Path) -> Remains:
        files = [path for path in directory.rglob("*") if path.is_file()]
        return cls(
            rss_mib=psutil.Process(pid).memory_info().rss / _MIB,
            images=len(_images(directory)),
            files_mib=sum(path.stat().st_blocks for path in files) * 512 / _MIB,
        )

    def __str__(self) -> str:
        return (
            f"RSS {self.rss_mib:.1f} MiB, {self.images} images, files {self.files_mib:.1f} MiB"
        )


@attrs.frozen(kw_only=True)
class Result:
    """One flood, and the calls beside it."""

    sent: int
    seconds: float
    calls_ms: list[float]
    alone_ms: list[float]           # messages of the healthy stream before the flood
    beside_ms: list[float]          # and beside it
    before: Remains
    after: Remains


def p99(values: list[float]) -> float:
    return quantiles(values, n=100)[98]


class Healthy:
    """A stream of the flooded daemon that has nothing to do with the flood."""

    def __init__(self, client: penstock.Client) -> None:
        channel = f"aeron:udp?endpoint=127.0.0.1:{free_port()}|term-length=64k"
        self._subscription = client.add_subscription(channel, _STREAM + 1)
        self._publication = client.add_publication(channel, _STREAM + 1)
        if not self._subscription.wait_connected(_START_S):
            raise BenchError("the healthy stream does not connect")

    def beat(self) -> float:
        """Send a message, and return the time until it has arrived, in milliseconds."""
        arrived: list[int] = []
        start = time.perf_counter_ns()
        self._publication.send(b"beat", _START_S)
        while not arrived:
            self._subscription.wait(_START_S)
            self._subscription.poll(lambda message, _header: arrived.append(len(message)))
        return (time.perf_counter_ns() - start) / 1e6


def _images(directory: Path) -> list[Path]:
    return list((directory / "images").glob("*.logbuffer"))


def add_publications(
    client: penstock.Client, healthy: Healthy, seconds: float
) -> tuple[list[float], list[float]]:
    """Return the time that each call took, and the time that each message of the healthy stream
    took, in milliseconds. The calls are spread over the time."""
    taken, beats = [], []
    began = time.monotonic()
    for number in range(CALLS):
        time.sleep(max(0.0, began + number * seconds / CALLS - time.monotonic()))
        start = time.perf_counter_ns()
        publication = client.add_publication("aeron:ipc?term-length=64k", 2000 + number)
        taken.append((time.perf_counter_ns() - start) / 1e6)
        publication.close()
        beats += [healthy.beat() for _ in range(BEATS)]
    return taken, beats


def measure(addresses: int, rate: int, seconds: float) -> Result:
    """Flood a new daemon from ``addresses`` addresses."""
    port = free_port()
    with (
        network(veth=False) as where,
        runner.hosts(_SETTINGS, where, count=1, tables=_TABLES) as hosts,
        penstock.connect(hosts.near, name="flooded") as client,
        client.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{port}", _STREAM),
        Process([
            sys.executable, "-m", "bench.flood", "--target", str(port), "--addresses",
            str(addresses), "--rate", str(rate), "--seconds", str(seconds),
        ]) as flooder,
    ):
        pid = hosts.daemons[0].pid
        flooder.expect("ready", _START_S)
        client.add_publication("aeron:ipc?term-length=64k", 1999).close()
        healthy = Healthy(client)
        alone_ms = [healthy.beat() for _ in range(CALLS * BEATS)]
        known = len(_images(hosts.near))
        before = Remains.of(pid, hosts.near)
        flooder.say("go")
        calls_ms, beside_ms = add_publications(client, healthy, seconds * 0.95)
        sent = flooder.expect("sent", seconds + _START_S)
        gone_by = time.monotonic() + _GONE_S
        while len(_images(hosts.near)) > known and time.monotonic() < gone_by:
            time.sleep(0.1)
        time.sleep(2.0)         # the daemon frees the slots of ended images a second later
        after = Remains.of(pid, hosts.near)
    return Result(sent=sent["count"], seconds=sent["seconds"], calls_ms=calls_ms,
                  alone_ms=alone_ms, beside_ms=beside_ms, before=before, after=after)


@click.command()
@click.option("--addresses", "counts", default="1,5000", show_default=True,
              help="Numbers of addresses that the SETUPs come from.")
@click.option("--rate", default=20_000, show_default=True, type=click.IntRange(1, 100_000),
              help="SETUPs a second.")
@click.option("--seconds", default=10.0, show_default=True, type=click.FloatRange(0.5, 60.0),
              help="Length of each flood.")
@click.option("--target", type=int, hidden=True)
def main(counts: str, rate: int, seconds: float, target: int | None) -> None:
    """Print the 99th percentile of the calls, and what the daemon has before and after."""
    addresses = [int(count) for count in counts.split(",")]
    if not all(1 <= count <= _MOST_ADDRESSES for count in addresses):
        raise click.BadParameter(f"--addresses: from 1 to {_MOST_ADDRESSES} each")
    if target is not None:
        flood(target, addresses[0], rate, seconds)
        return
    for count in addresses:
        found = measure(count, rate, seconds)
        click.echo(
            f"addresses {count:5}  {found.sent / found.seconds:.0f} SETUPs a second for"
            f" {found.seconds:.1f} s  {CALLS} calls: p99 {p99(found.calls_ms):.1f} ms, longest"
            f" {max(found.calls_ms):.1f} ms, goal {GOAL_MS:g} ms"
        )
        click.echo(
            f"  healthy stream: p99 of a message {p99(found.alone_ms):.2f} ms alone,"
            f" {p99(found.beside_ms):.2f} ms beside the flood"
        )
        click.echo(f"  before: {found.before}\n  after:  {found.after}")
    click.echo(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    try:
        main()
    except (BenchError, subprocess.SubprocessError) as error:
        raise SystemExit(str(error)) from error
