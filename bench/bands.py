# SPDX-License-Identifier: Apache-2.0
"""Measure how long a stream of the top band waits beside saturating streams, with and without
bands: ``python -m bench.bands``.

Between two daemons on loopback, bulk streams publish as fast as they can; they state no priority.
Two probes send small messages in turn. The probe *top* has ``ps-priority=900`` (band B4). The probe
*flat* states no priority, so the sender serves it in one band with the bulk streams, as a sender
without bands would. A wait is the time from the offer to the sender's time stamp
(``channel-snd-ts-offset``). The result is the median, over interleaved pairs, of the ratio of the
99th percentiles.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import click

import penstock
from penstock._bench import runner
from penstock._bench.network import free_port, network
from penstock._bench.processes import BenchError, Process
from penstock._bench.worker_io import say

GOAL: Final = 0.3
PROBES: Final = {"top": ("|ps-priority=900", 11), "flat": ("", 12)}
ORDERS: Final = (("top", "flat"), ("flat", "top"))
_LOAD: Final = {"size": 1344, "rate": 4e6, "warmup_s": 0.0, "seconds": 3600.0}
_START_S: Final = 60.0
#: The governor delays small messages outside of band B4, which is no effect of the bands.
_TABLES: Final = {"scheduler": {"governor": False}}
_SETTINGS: Final = runner.Settings(term_length=1 << 20, window=512 * 1024)


# ---- processes -----------------------------------------------------------------------------------


def probe(client: penstock.Client, channel: str) -> None:
    """Send on one probe at a time: each line of the standard input is its name and the seconds."""
    rng = random.Random(1)
    publications = {
        name: client.add_exclusive_publication(f"{channel}|channel-snd-ts-offset=8{options}", id_)
        for name, (options, id_) in PROBES.items()
    }
    for publication in publications.values():
        publication.wait_connected(_START_S)
    say("ready")
    for line in sys.stdin:
        name, seconds = line.split()
        end = time.monotonic() + float(seconds)
        sent = 0
        while time.monotonic() < end:
            stamp = time.time_ns().to_bytes(8, "little")
            sent += publications[name].offer(stamp + bytes(8)) > 0
            time.sleep(rng.uniform(0.0005, 0.0025))
        say("sent", count=sent)


def collect(client: penstock.Client, channel: str) -> None:
    """Read both probes. Each line of the standard input names a probe and the number of messages
    to wait for; the answer has their waits in microseconds."""
    subscriptions = {
        name: client.add_subscription(channel, id_) for name, (_, id_) in PROBES.items()
    }
    say("ready")
    for line in sys.stdin:
        name, count = line.split()
        waits = []
        for message in subscriptions[name].messages(_START_S):
            offered, sent = (int.from_bytes(message[at:at + 8], "little") for at in (0, 8))
            waits.append((sent - offered) / 1e3)
            if len(waits) == int(count):
                break
        say("waits", us=waits)


_ROLES: Final = {"probe": probe, "collect": collect}


# ---- measurement ---------------------------------------------------------------------------------


def p99(values: list[float]) -> float:
    return quantiles(values, n=100)[98]


def favour(process: Process, nice: int) -> None:
    """Set the nice value of all threads of a process."""
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)


def measure(streams: int, pairs: int, seconds: float, nice: int) -> list[dict[str, float]]:
    """Return the percentiles of each pair, beside ``streams`` bulk streams."""
    found: list[dict[str, float]] = []
    with (
        network(veth=False) as where, runner.hosts(_SETTINGS, where, tables=_TABLES) as hosts,
        contextlib.ExitStack() as stack,
    ):
        favour(hosts.daemons[0], nice)
        channel = f"aeron:udp?endpoint={where.b.address}:{free_port()}"
        task = {**_LOAD, "channel": channel, "streams": streams, "busy": streams}
        running = {
            "many-sub": runner.worker("many-sub", where.b, {**task, "dir": str(hosts.far)}),
            "many-pub": runner.worker("many-pub", where.a, {**task, "dir": str(hosts.near)}),
        }
        for role, directory in (("collect", hosts.far), ("probe", hosts.near)):
            running[role] = Process([
                sys.executable, "-m", "bench.bands", "--role", role, str(directory), channel,
            ])
        for process in running.values():
            stack.enter_context(process)
        for process in running.values():
            process.expect("ready", _START_S)
        running["many-sub"].expect("connected", _START_S)
        running["many-pub"].say("go")
        time.sleep(1.0)
        for number in range(pairs):
            pair = {}
            for name in ORDERS[number % 2]:
                running["probe"].say(f"{name} {seconds}")
                sent = running["probe"].expect("sent", seconds + _START_S)["count"]
                running["collect"].say(f"{name} {sent}")
                waits = running["collect"].expect("waits", _START_S)["us"]
                pair[name] = quantiles(waits, n=100)[98]
                pair[f"{name} median"] = median(waits)
            found.append(pair)
    return found


@click.command()
@click.option("--pairs", default=10, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=1.0, show_default=True, type=click.FloatRange(0.2),
              help="Measured time of each half of a pair.")
@click.option("--bulk", "counts", default="1,16,64,256", show_default=True,
              help="Numbers of bulk streams.")
@click.option("--nice", default=0, show_default=True, type=click.IntRange(-20, 19),
              help="Nice value of the sender's daemon. Below 0 (root), other programs delay it "
              "less.")
@click.option("--role", type=click.Choice(list(_ROLES)), hidden=True)
@click.argument("directory", default="")
@click.argument("channel", default="")
def main(
    pairs: int, seconds: float, counts: str, nice: int, role: str | None, directory: str,
    channel: str,
) -> None:
    """Print the waits of both probes, and the ratio of their 99th percentiles."""
    if role:
        with penstock.connect(directory) as client:
            _ROLES[role](client, channel)
        return
    for streams in map(int, counts.split(",")):
        rows = measure(streams, pairs, seconds, nice)
        ratio = median(row["top"] / row["flat"] for row in rows)
        click.echo(
            f"bulk streams {streams:4}  p99 top {median(row['top'] for row in rows):9.1f} us"
            f"  flat {median(row['flat'] for row in rows):9.1f} us  ratio {ratio:.2f}"
            f"  goal {GOAL:g}  medians {median(row['top median'] for row in rows):.1f} and"
            f" {median(row['flat median'] for row in rows):.1f} us"
        )
    click.echo(f"pairs {pairs}, nice {nice}, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    try:
        main()
    except (BenchError, subprocess.SubprocessError) as error:
        raise SystemExit(str(error)) from error
