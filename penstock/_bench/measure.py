# SPDX-License-Identifier: Apache-2.0
"""Run a publisher and a subscriber, or a pinger and a ponger, and measure all processes.

A message rate is measured at the subscriber: the number of messages received between two moments,
divided by the time between these moments. The processor time of all measured processes between the
same two moments, divided by this number of messages, is the processor time for a message.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from penstock._bench.processes import Process
from penstock.core.bench import expected_hash

READY_S: Final = 40.0
_SLACK_S: Final = 30.0


class _Bill:
    """Processor time of processes at the marks."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._processes = processes
        self._samples: list[tuple[int, list[int]]] = []

    def sample(self) -> None:
        self._samples.append((time.monotonic_ns(), [one.cpu_ns() for one in self._processes]))

    def shares(self) -> list[float]:
        """For each process, return the mean number of processor cores that it kept busy between the
        first and the second sample."""
        (begin_ns, before), (end_ns, after) = self._samples[:2]
        span = end_ns - begin_ns
        return [(late - early) / span for early, late in zip(before, after, strict=True)]


def throughput(
    publisher: Process,
    subscriber: Process,
    others: Sequence[Process],
    *,
    size: int,
    seconds: float,
    warmup_s: float,
) -> dict[str, Any]:
    """Measure the throughput. The caller must have started the publisher and the subscriber."""
    subscriber.expect("ready", READY_S)
    publisher.expect("ready", READY_S)
    bill = _Bill([*others, publisher, subscriber])
    publisher.say("go")
    patience_s = warmup_s + seconds + _SLACK_S
    first = subscriber.expect("mark", patience_s)
    bill.sample()
    second = subscriber.expect("mark", patience_s)
    bill.sample()
    publisher.say("stop")
    sent = publisher.expect("done", _SLACK_S)
    subscriber.say(f"expect {sent['messages']}")
    received = subscriber.expect("done", _SLACK_S)
    return {
        **_rates(first, second, bill, size, len(others)),
        "sent": sent["messages"],
        "received": received["messages"],
        **_pressure(sent),
        **_verdict(sent["messages"], received),
    }


def _rates(
    first: dict[str, Any], second: dict[str, Any], bill: _Bill, size: int, others: int
) -> dict[str, Any]:
    elapsed_s = (second["ns"] - first["ns"]) / 1e9
    messages = second["messages"] - first["messages"]
    rate = messages / elapsed_s
    shares = bill.shares()
    return {
        "msgs_per_s": rate,
        "gbit_s": rate * size * 8 / 1e9,
        "cpu_ns_per_msg": sum(shares) * 1e9 / rate if messages else None,
        "cpu_cores": sum(shares),
        "daemon_cores": shares[:others],
        "client_cores": shares[others:],
        "messages": messages,
        "seconds": elapsed_s,
    }


def _pressure(sent: dict[str, Any]) -> dict[str, Any]:
    """Return how often and how long the log was full; a stream is consumer-bound if that was half
    of the time or more. Only penstock's publishers say."""
    if "pressure_ns" not in sent:
        return {}
    share = sent["pressure_ns"] / sent["ns"]
    return {
        "pressure_events": sent["pressure_events"],
        "pressure_share": share,
        "peak_depth_bytes": sent["peak_depth_bytes"],
        "verdict": "consumer-bound" if share >= 0.5 else "source-bound",
    }


def _verdict(sent: int, received: dict[str, Any]) -> dict[str, Any]:
    good = (
        received["messages"] == sent
        and received["hash"] == f"{expected_hash(sent):016x}"
        and received.get("out_of_order", 0) == 0
    )
    return {"hash_ok": good}


def round_trips(
    pinger: Process, ponger: Process, others: Sequence[Process], *, seconds: float, warmup_s: float
) -> dict[str, Any]:
    """Measure round trips. The pinger compares each message that the ponger returns with the
    message that the pinger sent.
    """
    ponger.expect("ready", READY_S)
    pinger.expect("ready", READY_S)
    bill = _Bill([*others, pinger, ponger])
    patience_s = warmup_s + seconds + _SLACK_S
    pinger.say("go")
    first = pinger.expect("mark", patience_s)
    bill.sample()
    second = pinger.expect("mark", patience_s)
    bill.sample()
    done = pinger.expect("done", _SLACK_S)
    elapsed_s = (second["ns"] - first["ns"]) / 1e9
    rate = second["messages"] / elapsed_s
    shares = bill.shares()
    return {
        "p50_us": done["p50_us"],
        "p99_us": done["p99_us"],
        "p999_us": done["p999_us"],
        "msgs_per_s": rate,
        "cpu_ns_per_msg": sum(shares) * 1e9 / rate,
        "cpu_cores": sum(shares),
        "daemon_cores": shares[: len(others)],
        "messages": second["messages"],
        "seconds": elapsed_s,
        "hash_ok": True,
    }


def idle(daemons: Sequence[Process], *, seconds: float, settle_s: float) -> dict[str, Any]:
    """Measure how much processor time (as a number of cores) daemons use while their streams are
    connected but transport no messages.
    """
    time.sleep(settle_s)
    bill = _Bill(daemons)
    bill.sample()
    time.sleep(seconds)
    bill.sample()
    shares = bill.shares()
    return {"daemon_cores": shares, "worst_daemon_core": max(shares), "seconds": seconds}


def many_streams(
    publisher: Process,
    subscriber: Process,
    others: Sequence[Process],
    *,
    size: int,
    seconds: float,
    warmup_s: float,
    ready_s: float,
    directories: Sequence[Path],
) -> dict[str, Any]:
    """Measure many streams at once, by the same method as :func:`throughput`. The result also
    states whether the hashes of all busy streams are right, the time until all streams were
    connected, and each daemon's memory."""
    begin_ns = time.monotonic_ns()
    subscriber.expect("ready", ready_s)
    publisher.expect("ready", ready_s)
    subscriber.expect("connected", ready_s)
    footprint: dict[str, Any] = {
        "connect_s": (time.monotonic_ns() - begin_ns) / 1e9,
        "files_bytes": [_allocated(directory) for directory in directories],
        **_memory(others),
    }
    time.sleep(1.5)  # the work after an addition has ended
    bill = _Bill([*others, publisher, subscriber])
    publisher.say("go")
    patience_s = warmup_s + seconds + _SLACK_S
    first = subscriber.expect("mark", patience_s)
    bill.sample()
    second = subscriber.expect("mark", patience_s)
    bill.sample()
    publisher.say("stop")
    sent = publisher.expect("done", _SLACK_S)
    subscriber.say(f"expect {sent['messages']}")
    received = subscriber.expect("done", _SLACK_S)
    good = received["messages"] == sent["messages"] and all(
        f"{expected_hash(count):016x}" == value for count, value in received["hashes"]
    )
    return {**_rates(first, second, bill, size, len(others)), **footprint, "hash_ok": good}


def _allocated(directory: Path) -> int:
    """Return the bytes that the files of a directory occupy."""
    return sum(512 * path.stat().st_blocks for path in directory.rglob("*") if path.is_file())


def _memory(processes: Sequence[Process]) -> dict[str, Any]:
    """Return the resident bytes with and without shared memory, and the number of mappings, of
    each process."""
    resident, private, mappings = [], [], []
    for process in processes:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        fields = dict(line.split(":", 1) for line in status.splitlines())
        resident.append(1024 * int(fields["VmRSS"].split()[0]))
        private.append(1024 * int(fields["RssAnon"].split()[0]))
        maps = Path(f"/proc/{process.pid}/maps").read_bytes()
        mappings.append(maps.count(b"\n"))
    return {"resident_bytes": resident, "private_bytes": private, "mappings": mappings}
