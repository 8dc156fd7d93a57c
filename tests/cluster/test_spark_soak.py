# SPDX-License-Identifier: Apache-2.0
"""A chain of two queries while processes of every kind die: exact, in order, with true times.

A publisher numbers its messages and keeps a log of when it offered each. Daemons write into each
message when it was sent, when the receiving host's kernel received it, and when that host's daemon
read it; the first query's channel does not state this, so its times are those of the time table.
The first query publishes each message with its time; the second one reads that with
readCommitted=true and keeps a file for each batch. The streams' logs are on two hosts, and so are
the executors.

Each death falls into a batch: the second query's sink keeps a batch that it has stored, while
something is killed. Then the sink fails, or goes on. A batch that was stored and not committed has
to come again, with the same rows and times.

``make soak`` runs an hour of it: PENSTOCK_SPARK_SOAK=RECORDS,KILLS,SECONDS. A fourth number is the
place in KINDS at which the deaths begin.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.patience import STRETCH_S, Patience
from support.processes import Peer, PeerError

from cluster.spark_cluster import Driver, Drivers, SparkCluster
from cluster.spark_driver import MESSAGE
from cluster.spark_publisher import HEAD
from cluster.test_spark_kill import source_runners
from penstock.client import GroupControl, GroupError

RECORDS, KILLS, SECONDS, FIRST = map(
    int, (os.environ.get("PENSTOCK_SPARK_SOAK", "40000,4,40") + ",0").split(",")[:4]
)

pytestmark = [
    pytest.mark.needs_root, pytest.mark.slow, pytest.mark.timeout(1200 + 8 * SECONDS),
]

STREAM = 900
#: Where daemons write times into a message.
STAMPED_AT = {name: MESSAGE.fields[name][1] for name in ("sent", "received", "read")}
# Longer than a receiver waits for a silent sender: the sessions of the host end, and return.
ABSENCE_S = 12.0
PATIENCE_S = 240.0
# On a busy machine a query is away for long: Spark kills a Python worker that starts too slowly.
WINDOW_S = 3600.0
# The bound that docs/spark.md states: 1 ms, or this share of the age at the time of planning.
BOUND_NS, BOUND_SHARE = 1_000_000, 0.011
# Between two deaths; more batches show more cuts, and cost a second each.
BATCHES = 3


class Chain:
    """Both queries, and what came out of the second one."""

    def __init__(self, spark: SparkCluster, drivers: Drivers, folder: Path) -> None:
        self.spark = spark
        self.drivers = drivers
        self.folder = folder
        self.first = f"aeron:udp?endpoint={spark.lan.address(1)}:24061|term-length=16m"
        self.second = f"aeron:udp?endpoint={spark.lan.address(2)}:24062|term-length=16m"
        self.rows: dict[int, int] = {}
        self.restarts: Counter[str] = Counter()
        self.deaths_ns: list[tuple[int, int]] = []  # of the first stream's daemon: kill, end
        self.asked = 0          # batches that the sink was to keep
        self.held = -1          # the batch that the sink keeps
        self.forced: set[int] = set()       # batches that were stored, and are not committed
        self.limit = str(max(1, RECORDS // (BATCHES * (KILLS + 2))))

    @property
    def driver(self) -> Driver:
        return self.drivers.current

    def start(self, name: str) -> None:
        spark = self.spark
        common = {"streamId": str(STREAM), "startingOffsets": "earliest", "retry": "90s",
                  "groupExpiry": "1h", "maxOffsetsPerTrigger": self.limit}
        if name == "relay":
            self.driver.request(
                "relay", query=name, timeout_s=PATIENCE_S,
                source=spark.source(1, channel=self.first, subscription="soak-1", **common),
                sink={"channel": self.second, "streamId": str(STREAM), "timeout": "90s"},
                checkpoint=str(self.folder / "checkpoint-1"),
            )
        else:
            self.driver.request(
                "keep", query=name, timeout_s=PATIENCE_S, folder=str(self.folder / "out"),
                source=spark.source(
                    2, channel=self.second, subscription="soak-2", readCommitted="true", **common
                ),
                checkpoint=str(self.folder / "checkpoint-2"),
            )

    def stamp(self) -> None:
        """Lets the daemon of the first stream write its times into what it receives. A group of
        another stream states the offsets for the endpoint; the query's channel has none."""
        with GroupControl(directory=str(self.spark.hosts[1].directory)) as control:
            control.open(
                name="stamps", stream_id=STREAM + 1, starting="latest", expiry_ns=24 * 3600 * 10**9,
                channel=f"{self.first}|media-rcv-ts-offset={STAMPED_AT['received']}"
                        f"|channel-rcv-ts-offset={STAMPED_AT['read']}",
            )

    def begin(self) -> None:
        """The reader first: it misses nothing of what the other publishes."""
        self.start("keep")
        self.start("relay")

    def mend(self) -> None:
        """Starts again what has ended, as an operator would."""
        for name in ("keep", "relay"):
            found = self.driver.request("progress", query=name, timeout_s=PATIENCE_S)
            if found["active"]:
                continue
            reason = self.driver.request("ended", query=name, timeout_s=PATIENCE_S)["error"]
            print(f"{name} ended: {reason.splitlines()[0] if reason else 'stopped'}")
            assert "RepeatDiffers" not in reason
            assert "data loss" not in reason.lower()
            self.restarts[name] += 1
            self.start(name)

    def hear(self, seconds: float) -> bool:
        """What the driver says within that time; False: no rows came. A wait of STRETCH_S is never
        prolonged: on a busy machine one longer wait for a query that has ended took a quarter of an
        hour, and the publisher gave up."""
        deadline = time.monotonic() + seconds
        before = sum(self.rows.values())
        while (left := deadline - time.monotonic()) > 0:
            try:
                line = self.driver.peer.next(min(left, STRETCH_S))
            except PeerError:
                if self.driver.peer.process.poll() is not None:
                    break
                continue
            self._note(line)
        return sum(self.rows.values()) > before

    def _note(self, line: dict[str, Any]) -> None:
        if line["event"] == "kept":
            self.rows[line["batch"]] = line["rows"]

    # ---- a batch that is in work -----------------------------------------------------------------

    def ask(self) -> None:
        """Lets the sink keep the batch that the next death falls into, by the rows that are stored
        with it. The sink knows it before it goes on: a query may store all that is left while this
        process waits for an answer."""
        out = self.folder / "out"
        out.mkdir(exist_ok=True)
        (out / "held").unlink(missing_ok=True)
        if self.asked == KILLS:
            (out / "hold").unlink(missing_ok=True)      # there is none without a death
            return
        self.asked += 1
        fresh = out / ".hold"
        fresh.write_text(str(RECORDS * self.asked // (KILLS + 2)))
        fresh.replace(out / "hold")

    def hold(self) -> None:
        """Waits until the sink keeps a batch that it has stored."""
        held = self.folder / "out" / "held"
        patience = Patience(PATIENCE_S)
        while not held.exists() or not (text := held.read_text()):
            if self.hear(0.2):
                patience = Patience(PATIENCE_S)
            self.mend()
            assert not patience.is_over, self.standstill(RECORDS)
        self.held = int(text)

    def release(self, *, fail: bool) -> None:
        """Lets the sink go on, or fail: then the batch has to come again."""
        if fail:
            (self.folder / "out" / "fail").touch()
            self.forced.add(self.held)
        self.ask()

    def until(self, count: int) -> None:
        patience = Patience(PATIENCE_S)
        while self.stored() < count:
            if self.hear(2.0):
                patience = Patience(PATIENCE_S)
            self.mend()
            assert not patience.is_over, self.standstill(count)

    def standstill(self, count: int) -> str:
        """State where the rows are that do not come: the missing numbers, both queries, and the
        logs that the daemons of both streams retain."""
        lines = [f"{self.stored()} of {count} rows"]
        if any(self.rows.values()):         # a batch may have markers only
            numbers = self.content()["number"]
            missing = np.setdiff1d(np.arange(numbers.max() + 1), numbers)
            lines.append(
                f"highest number {numbers.max()}, below it {len(missing)} are missing, "
                f"{missing[:1]} to {missing[-1:]}"
            )
        for name in ("keep", "relay"):
            with contextlib.suppress(PeerError):
                found = self.driver.request("progress", query=name)
                lines.append(f"{name}: {json.dumps(found)[:4000]}")
        for number in (1, 2):
            offsets = self.folder / f"checkpoint-{number}" / "offsets"
            newest = max((int(p.name) for p in offsets.glob("[0-9]*")), default=None)
            if newest is not None:
                lines.append(f"offset {newest} of query {number}: "
                             f"{(offsets / str(newest)).read_text()[:4000]}")
        lines += [*self.logs(), "positions at each death:"]
        with contextlib.suppress(OSError):
            lines += (self.folder / "positions").read_text().splitlines()[-200:]
        return "\n".join(lines)

    def logs(self) -> list[str]:
        """The logs that both streams' daemons retain."""
        lines = []
        for host in (1, 2):
            with GroupControl(directory=str(self.spark.hosts[host].directory)) as control:
                try:
                    groups = control.groups()
                except GroupError as error:
                    lines.append(f"daemon {host}: {error}")
                    continue
            for group in groups:
                lines.append(f"daemon {host}: group {group.name} {group.channel}")
                lines += [
                    f"  log {log.log_id} session {log.session_id} committed {log.committed} "
                    f"retained from {log.retained_from} to {log.end_position}, ended {log.ended}"
                    for log in group.logs
                ]
        return lines

    def note(self, what: str) -> None:
        """Keeps what a standstill is explained with."""
        with (self.folder / "positions").open("a") as positions:
            text = "\n".join([f"{what}: {self.stored()} rows", *self.logs()])
            positions.write(f"{text}\n")

    def stored(self) -> int:
        """Files are the truth: a driver that died may not have told the last one."""
        for path in (self.folder / "out").glob("[0-9]*.npy"):
            number = int(path.stem)
            if number not in self.rows:
                with contextlib.suppress(OSError, ValueError):
                    self.rows[number] = len(np.load(path, mmap_mode="r"))
        return sum(self.rows.values())

    def again(self) -> dict[int, str]:
        """For each batch that came again, a word: whether it was the same each time."""
        path = self.folder / "out" / "again"
        found: dict[int, str] = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            batch, word = line.split()
            if found.get(int(batch)) != "another":
                found[int(batch)] = word
        return found

    def files(self) -> list[Path]:
        return sorted((self.folder / "out").glob("[0-9]*.npy"), key=lambda p: int(p.stem))

    def content(self) -> Any:
        """All rows, batch after batch."""
        return np.concatenate([np.load(path) for path in self.files()])

    def planned_ns(self, positions: Any) -> Any:
        """For each position of the first stream, when the first query had planned its batch: Spark
        writes the offset of a batch when it is planned, and keeps the file if the batch comes
        again."""
        ends: list[tuple[int, int]] = []
        for path in (self.folder / "checkpoint-1" / "offsets").glob("[0-9]*"):
            offset = json.loads(path.read_text().splitlines()[2])
            ends += [
                (value, path.stat().st_mtime_ns) for name, value in offset.items()
                if name.startswith(self.first) and isinstance(value, int)
            ]
        edges, written_ns = np.array(sorted(ends)).T
        # A position may be the end of several batches: the first of them has its messages.
        return written_ns[np.searchsorted(edges, positions, side="left")]

    # ---- deaths ----------------------------------------------------------------------------------

    def strike(self, what: str, rng: random.Random) -> bool:
        """Kills a process of a kind; False: there is none now."""
        if what == "driver":
            self.drivers.kill()
            self.forced.add(self.held)
            self.release(fail=False)
            self.begin()
            return True
        if what.startswith(("daemon", "absence")):
            host, began, began_ns = int(what[-1]), time.monotonic(), time.time_ns()
            self.spark.hosts[host].kill()
            killed_ns = time.time_ns()
            if what.startswith("absence"):
                time.sleep(ABSENCE_S)       # the length of the fault
            self.spark.restart_daemon(host)
            took = time.monotonic() - began
            if host == 1:
                self.deaths_ns.append((began_ns, killed_ns))
            print(f"the daemon of host {host} was away for {took:.1f} s")
            return True
        pids = self._pids(what)
        if pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(pids), signal.SIGKILL)
        return bool(pids)

    def _pids(self, what: str) -> list[int]:
        if what == "runner":
            return source_runners(self.driver)
        executors = [
            pid for pids in self.spark.executors(self.driver.application).values() for pid in pids
        ]
        if what == "executor":
            return executors
        return [worker for pid in executors for worker in self.spark.python_workers(pid)]


KINDS = (
    "worker", "executor", "runner", "driver", "daemon-1", "daemon-2", "absence-1", "worker",
    "absence-2", "executor",
)


def test_a_chain_is_exact_in_order_and_true_in_time_whatever_dies(
    spark: SparkCluster, drivers: Drivers, tmp_path: Path
) -> None:
    rng = random.Random(20_26)
    chain = Chain(spark, drivers, tmp_path)
    log = tmp_path / "publisher.log"
    killed: Counter[str] = Counter()
    began = time.monotonic()
    chain.stamp()
    chain.ask()
    chain.begin()
    with spark.publisher(
        0, f"--channel={chain.first}|channel-snd-ts-offset={STAMPED_AT['sent']}",
        f"--stream={STREAM}", f"--count={RECORDS}", f"--size={MESSAGE.itemsize}",
        f"--rate={RECORDS / SECONDS}", f"--timeout={WINDOW_S}", f"--log={log}", "--until-told",
        "--linger",
    ) as publisher:
        for number in range(KILLS):
            what = KINDS[(FIRST + number) % len(KINDS)]
            chain.hold()
            struck, before = time.monotonic(), chain.stored()
            chain.note(f"{struck - began:.0f} s, before death {number + 1} of {what}")
            if chain.strike(what, rng):
                killed[what] += 1
            if what != "driver":
                chain.release(fail=rng.random() < 0.5)
            chain.note(f"{time.monotonic() - began:.0f} s, after it")
            chain.until(min(RECORDS, before + 1))
            print(f"{struck - began:.0f} s: {what} in batch {chain.held}; rows came again "
                  f"{time.monotonic() - struck:.0f} s later")
        publisher.wait("done", PATIENCE_S + 4 * SECONDS)
        chain.until(RECORDS)
        report(chain, log, killed, time.monotonic() - began)
        finish(publisher)
    drivers.current.request("stop_all", timeout_s=PATIENCE_S)


def finish(publisher: Peer) -> None:
    with contextlib.suppress(PeerError):
        publisher.finish()


def report(chain: Chain, log: Path, killed: Counter[str], seconds: float) -> None:
    """Exact, in order, the same when a batch came again, and with true times."""
    rows = chain.content()
    numbers = rows["number"]
    assert len(rows) == RECORDS
    assert (np.sort(numbers) == np.arange(RECORDS)).all()
    for session in np.unique(rows["session"]):
        positions = rows["position"][rows["session"] == session]
        assert (np.diff(positions) > 0).all(), f"session {session}: order"
    again = chain.again()
    assert "another" not in again.values(), f"these batches differed: {again}"
    assert chain.forced <= set(again), "a batch that was not committed comes again"
    times = np.frombuffer(log.read_bytes(), np.int64).reshape(-1, HEAD.size // 8)[numbers]
    assert (times[:, 0] == rows["offered"]).all()
    print(
        f"{RECORDS} records, {sum(killed.values())} of {KILLS} kills ({dict(killed)}) in "
        f"{seconds:.0f} s; {len(chain.rows)} batches, {len(again)} came again and were the same "
        f"({len(chain.forced)} of them had to); restarts {dict(chain.restarts)}"
    )
    check_times(rows, chain)


def check_times(rows: Any, chain: Chain) -> None:
    """Each time lies within the bound of the docs behind the arrival, which the daemon wrote into
    the message. There is no allowance: on a machine with other work, the message waits for the
    daemon, but a message has not arrived before the daemon reads it."""
    rows = np.sort(rows, order="number")
    offered, sent, received, read = (rows[name] for name in ("offered", "sent", "received", "read"))
    assert min(sent.min(), received.min(), read.min()) > 0, "each message has all times"
    # A message can be read when all messages before it have arrived too.
    arrived = np.maximum.accumulate(read)
    # Times are in microseconds: up to one is cut off.
    late = rows["first_us"] * 1000 + 999 - arrived
    assert (late >= 0).all(), f"{(late < 0).sum()} times lie before the message arrived"
    bound = np.maximum(BOUND_NS, BOUND_SHARE * (chain.planned_ns(rows["first_position"]) - arrived))
    over = late - 999 > bound
    # A daemon notes the time of what it has read at the end of its duty cycle. If it dies before,
    # the next daemon notes the time at which it takes over.
    unnoted = np.zeros(len(rows), bool)
    for began_ns, killed_ns in chain.deaths_ns:
        unnoted |= (arrived <= killed_ns) & (late + arrived >= began_ns)
    print("arrival by the daemon's clock to time: " + shown(late - 999) + f"; {over.sum()} "
          f"beyond the bound, {(over & unnoted).sum()} of them for a death of the daemon")
    for name, span in (
        ("offer to send", sent - offered), ("send to the kernel's receipt", received - sent),
        ("the kernel's receipt to the daemon's read", read - received),
        ("read to all before it read", arrived - read),
        ("offer to time", rows["first_us"] * 1000 - offered),
    ):
        print(f"{name}: {shown(span)}")
    assert not (over & ~unnoted).any(), (
        f"{(over & ~unnoted).sum()} times are beyond the bound, at most by "
        f"{(late - bound)[~unnoted].max() / 1e6:.3f} ms"
    )


def shown(spans_ns: Any) -> str:
    """Percentiles."""
    values = np.percentile(spans_ns, (0, 50, 99, 99.9, 100)) / 1e6
    return "least {:.3f}, median {:.3f}, 99 % {:.3f}, 99.9 % {:.3f}, most {:.3f} ms".format(*values)
