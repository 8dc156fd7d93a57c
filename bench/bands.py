# SPDX-License-Identifier: Apache-2.0
"""Measure how long a stream of the top band waits beside saturating streams, in a build with bands
and in one without them: ``python -m bench.bands``.

Between two daemons in network namespaces, bulk streams publish as fast as they can; they state no
priority. The link carries --link-mbit, and the sender's socket buffer is small, so that the sender
always has more to send than the link takes. On a faster link the receivers hold the sender on two
processors, and no stream waits for it. A probe with ``ps-priority=900`` (band B4) sends small
messages by the same socket. A wait is the time from the offer to the sender's time stamp
(``channel-snd-ts-offset``), the begin of the cycle that sends the message. In a build without bands
a cycle has several turns, so its waits are longer than stated.

The build without bands has the same sources with one queue: a turn drains up to 64 datagrams, and a
cycle serves up to 16 streams before it looks for new ones, as before bands existed. The pairs are
interleaved. The result is the median of their ratios of the 99th percentiles.

The sender's daemon has the first processor, all other processes have the others. Otherwise the
kernel's division of the processors decides the 99th percentile, and not the order of turns.
"""

from __future__ import annotations

import contextlib
import json
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
from bench import pairs as builds
from penstock._bench import runner
from penstock._bench.network import Side, free_port, network
from penstock._bench.processes import BenchError, Process
from penstock._bench.worker_io import say

GOAL: Final = 0.3
STREAM: Final = 11
_LOAD: Final = {"size": 1344, "rate": 4e6, "warmup_s": 0.0, "seconds": 3600.0}
_START_S: Final = 60.0
#: The governor delays small messages outside of band B4, which is no effect of the bands.
_TABLES: Final = {
    "scheduler": {"governor": False},
    "sockets": {"sndbuf_bytes": 64 << 10, "rcvbuf_bytes": 4 << 20},
}
#: The counter of the daemon. The interface's own count has the headers of each datagram only if the
#: kernel splits the sender's messages before the queue.
BYTES_RECEIVED: Final = 1
LINK_MBIT: Final = 400                  # 0: no bound
_SETTINGS: Final = runner.Settings(term_length=1 << 20, window=512 * 1024)
#: The patches of a build without bands: the file, its text, and the text that replaces it.
WITHOUT: Final = (
    ("ps_priority.c", "    if (effective < 0) {\n        return PS_BAND_B0;",
     "    if (effective < 1 << 30) {\n        return PS_BAND_B1;"),
    ("ps_sender.c", "bands->alone > 0 ? bands->lone_turn : bands->quantum;",
     "PS_BANDS_QUANTUM_MAX;"),
    ("ps_send_endpoint_drain.c", "endpoint->turn_most = ps_bands_quantum(rate,",
     "endpoint->turn_most = INT64_MAX - ps_bands_quantum(rate,"),
    ("ps_sender.c", "left > 0 && (sender->slow || (bytes < sender->bands.quantum && !further));",
     "left > 0;"),
    ("ps_sender.c", "    sender->slow = sender->bands.waiting > 0 && now_ns",
     "    sender->slow = now_ns < 0 && now_ns"),
    ("ps_sender.h", "PS_TURNS_PER_CYCLE = 32,", "PS_TURNS_PER_CYCLE = 16,"),
)


def leave_out_bands(tree: Path) -> None:
    """Change the sources of a copied tree."""
    for name, now, instead in WITHOUT:
        path, = (tree / "core" / "src").rglob(name)
        source = path.read_text(encoding="utf-8")
        if source.count(now) != 1:
            raise click.ClickException(f"{name} has changed: {now!r}")
        path.write_text(source.replace(now, instead), encoding="utf-8")


# ---- processes -----------------------------------------------------------------------------------


def probe(client: penstock.Client, channel: str) -> None:
    """Send small messages: each line of the standard input states for how many seconds."""
    rng = random.Random(1)
    publication = client.add_exclusive_publication(
        f"{channel}|channel-snd-ts-offset=8|ps-priority=900", STREAM
    )
    publication.wait_connected(_START_S)
    say("ready")
    for line in sys.stdin:
        end = time.monotonic() + float(line)
        sent = 0
        while time.monotonic() < end:
            stamp = time.time_ns().to_bytes(8, "little")
            sent += publication.offer(stamp + bytes(8)) > 0
            time.sleep(rng.uniform(0.0005, 0.0025))
        say("sent", count=sent)


def collect(client: penstock.Client, channel: str) -> None:
    """Read the probe. Each line of the standard input states the number of messages to wait for;
    the answer has their waits in microseconds."""
    subscription = client.add_subscription(channel, STREAM)
    say("ready")
    for line in sys.stdin:
        waits = []
        for message in subscription.messages(_START_S):
            offered, sent = (int.from_bytes(message[at:at + 8], "little") for at in (0, 8))
            waits.append((sent - offered) / 1e3)
            if len(waits) == int(line):
                break
        say("waits", us=waits)


_ROLES: Final = {"probe": probe, "collect": collect}


# ---- measurement ---------------------------------------------------------------------------------


def place(process: Process, processors: set[int]) -> None:
    """Bind all threads of a process to the processors."""
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), processors)


def favour(process: Process) -> None:
    """Let no ordinary program delay the threads of a process. Without root, nothing changes."""
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(1))


def _out(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def link_of(side: Side) -> str:
    """Return the name of the interface of a host."""
    names = [link["ifname"] for link in json.loads(_out(*side.prefix, "ip", "-json", "link"))]
    name, = (name for name in names if name != "lo")
    return str(name)


def slow_down(side: Side, mbit: int) -> None:
    """Bound the rate of what a host sends. The queue holds all that the socket buffers hold."""
    _out(*side.prefix, "tc", "qdisc", "add", "dev", link_of(side), "root", "tbf", "rate",
         f"{mbit}mbit", "burst", "64kb", "limit", "8mb")


def cpu_s(process: Process) -> float:
    line = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii")
    fields = line.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def half(streams: int, seconds: float, mbit: int) -> dict[str, float]:
    """Measure the probe of this build alone, and beside ``streams`` bulk streams."""
    processors = sorted(os.sched_getaffinity(0))
    own, others = {processors[0]}, set(processors[1:] or processors)
    os.sched_setaffinity(0, others)
    with (
        network(veth=True) as where, runner.hosts(_SETTINGS, where, tables=_TABLES) as hosts,
        contextlib.ExitStack() as stack,
    ):
        if mbit > 0:
            slow_down(where.a, mbit)
        sender = hosts.daemons[0]
        place(sender, own)
        favour(sender)
        channel = f"aeron:udp?endpoint={where.b.address}:{free_port()}"
        running = {}
        for role, side, directory in (
            ("collect", where.b, hosts.far), ("probe", where.a, hosts.near)
        ):
            command = [sys.executable, "-m", "bench.bands", "--role", role, str(directory), channel]
            running[role] = Process(command, prefix=side.prefix)
        task = {**_LOAD, "channel": channel, "streams": streams, "busy": streams}
        running["many-sub"] = runner.worker("many-sub", where.b, {**task, "dir": str(hosts.far)})
        running["many-pub"] = runner.worker("many-pub", where.a, {**task, "dir": str(hosts.near)})
        for process in running.values():
            stack.enter_context(process)
        for process in running.values():
            process.expect("ready", _START_S)
        running["many-sub"].expect("connected", _START_S)
        favour(running["probe"])

        def waits() -> list[float]:
            running["probe"].say(f"{seconds}")
            sent = running["probe"].expect("sent", seconds + _START_S)["count"]
            running["collect"].say(f"{sent}")
            found: list[float] = running["collect"].expect("waits", _START_S)["us"]
            return found

        alone = waits()
        far = stack.enter_context(penstock.connect(hosts.far))
        running["many-pub"].say("go")
        time.sleep(0.5)
        begin_s, before, used_s = time.monotonic(), far.counters[BYTES_RECEIVED], cpu_s(sender)
        beside = waits()
        took_s = time.monotonic() - begin_s
        return {
            "alone": quantiles(alone, n=100)[98],
            "p99": quantiles(beside, n=100)[98],
            "median": median(beside),
            "bytes_per_s": (far.counters[BYTES_RECEIVED] - before) / took_s,
            "cpu": (cpu_s(sender) - used_s) / took_s,
        }


def half_of(site: Path, streams: int, seconds: float, mbit: int) -> dict[str, float]:
    """Run :func:`half` with the package of a build."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.bands", "--half", str(streams), "--seconds", str(seconds),
         "--link-mbit", str(mbit)],
        check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": f"{site}:{builds.ROOT}", "PYTHONSAFEPATH": "1"},
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def report(streams: int, rows: list[dict[str, dict[str, float]]]) -> str:
    def middle(name: str, key: str) -> float:
        return median(row[name][key] for row in rows)

    ratio = median(row["bands"]["p99"] / row["without"]["p99"] for row in rows)
    speed = median(row["bands"]["bytes_per_s"] / row["without"]["bytes_per_s"] for row in rows)
    return (
        f"bulk {streams:4}  p99 {middle('bands', 'p99'):8.1f}"
        f" without {middle('without', 'p99'):8.1f} us  ratio {ratio:.2f} (goal {GOAL:g})"
        f"  medians {middle('bands', 'median'):.1f} and"
        f" {middle('without', 'median'):.1f} us  alone {middle('bands', 'alone'):.1f} us  bulk"
        f" {middle('bands', 'bytes_per_s') / 1e6:.0f} MB/s, ratio {speed:.2f}  sender"
        f" {middle('bands', 'cpu'):.2f} and {middle('without', 'cpu'):.2f} of a core"
    )


@click.command()
@click.option("--pairs", default=10, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=1.0, show_default=True, type=click.FloatRange(0.2),
              help="Measured time of each half of a pair, alone and beside bulk streams.")
@click.option("--bulk", "counts", default="1,16,64,256", show_default=True,
              help="Numbers of bulk streams.")
@click.option("--link-mbit", "mbit", default=LINK_MBIT, show_default=True, type=click.IntRange(0),
              help="Rate of the link, in megabits a second; 0: no bound.")
@click.option("--role", type=click.Choice(list(_ROLES)), hidden=True)
@click.option("--half", "streams", type=int, hidden=True)
@click.argument("directory", default="")
@click.argument("channel", default="")
def main(
    pairs: int, seconds: float, counts: str, mbit: int, role: str | None, streams: int | None,
    directory: str, channel: str,
) -> None:
    """Print the waits with and without bands, and the ratio of their 99th percentiles."""
    if role:
        with penstock.connect(directory) as client:
            _ROLES[role](client, channel)
        return
    if streams is not None:
        click.echo(json.dumps(half(streams, seconds, mbit)))
        return
    sites = {
        "bands": builds.build_here(),
        "without": builds.build_changed("without-bands", leave_out_bands),
    }
    for number in map(int, counts.split(",")):
        rows = []
        for turn in range(pairs):
            order = sorted(sites, reverse=turn % 2 == 1)
            rows.append({name: half_of(sites[name], number, seconds, mbit) for name in order})
        click.echo(report(number, rows))
    click.echo(f"pairs {pairs}, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    try:
        main()
    except (BenchError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None)
        raise SystemExit(f"{error}\n{detail or ''}") from error
