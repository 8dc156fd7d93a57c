# SPDX-License-Identifier: Apache-2.0
"""Processes of ``python -m bench.pressure``: publishers, subscribers and the probes of latency.

Usage: ``python -m bench.pressure_load ROLE DIRECTORY CHANNEL STREAMS``. Each process prints one
JSON object a second, and ends at the end of its standard input. The role ``pub`` reads one number a
line: the number of streams that publish as fast as they can.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from statistics import median, quantiles
from typing import Final

import numpy as np

import penstock
from penstock import Offer
from penstock._bench.worker_io import say

#: Name of a band, its ``ps-priority``, and its stream id. Streams of ``auto`` state no priority.
BANDS: Final = (("B4", 800, 11), ("B2", 300, 12), ("auto", None, 13), ("B0", -100, 14))
PROBES: Final = (("B4", 900, 21), ("auto", None, 22), ("B0", -500, 23))
SIZE: Final = 1024
BATCH: Final = 64
PROBE_S: Final = 0.01
_RECORD: Final = np.dtype([("number", "<i8"), ("rest", f"V{SIZE - 8}")])


def with_priority(channel: str, priority: int | None) -> str:
    return channel if priority is None else f"{channel}|ps-priority={priority}"


class Input:
    """The lines of standard input, read by a thread."""

    def __init__(self) -> None:
        self.busy = 0
        self.over = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self.busy = int(line)
        self.over.set()


class Seconds:
    """Call ``report`` once a second."""

    def __init__(self, report: Callable[[], None]) -> None:
        self._report = report
        self._next = time.monotonic() + 1.0

    def look(self) -> None:
        if (now := time.monotonic()) >= self._next:
            self._report()
            self._next = now + 1.0


class Source:
    """One publication that offers numbered messages as fast as it can."""

    def __init__(self, client: penstock.Client, channel: str, band: int) -> None:
        _, priority, stream_id = BANDS[band]
        self.band = band
        self.publication = client.add_exclusive_publication(
            with_priority(channel, priority), stream_id
        )
        self.accepted = 0
        self.throttled = 0
        self._again = 0.0
        self._records = np.zeros(BATCH, _RECORD)

    def offer(self, now: float) -> int:
        """Offer one batch. Returns the number of accepted messages."""
        if now < self._again:
            return 0
        self._records["number"] = np.arange(self.accepted, self.accepted + BATCH)
        result = self.publication.offer_batch(self._records)
        if result.position == Offer.THROTTLED:
            self.throttled += 1
            self._again = now + self.publication.retry_after_s
        self.accepted += result.accepted
        return result.accepted


def publish(client: penstock.Client, channel: str, count: int) -> None:
    sources = [Source(client, channel, index % len(BANDS)) for index in range(count)]
    for source in sources:
        source.publication.wait_connected(60.0)
    say("ready")
    told = Input()

    def report() -> None:
        throttled = sum(source.throttled for source in sources)
        say("second", at_s=time.monotonic(), busy=told.busy, throttled=throttled)

    seconds = Seconds(report)
    while not told.over.is_set():
        now = time.monotonic()
        if not sum([source.offer(now) for source in sources[: told.busy]]):
            time.sleep(0.0002)
        seconds.look()
    say("done", accepted=sum(source.accepted for source in sources))


class Check:
    """The order of the numbers of each session, and the bytes of each band."""

    def __init__(self) -> None:
        self.expected: dict[int, int] = {}
        self.bytes = [0] * len(BANDS)
        self.messages = 0
        self.wrong = 0

    def take(self, band: int, batch: penstock.MessageBatch) -> None:
        data, _ = batch.to_numpy()
        numbers = data.reshape(-1, SIZE)[:, :8].copy().view("<i8").reshape(-1)
        sessions = batch.session_ids
        for session in np.unique(sessions).tolist():
            of = numbers[sessions == session]
            first = self.expected.get(session, 0)
            self.wrong += int(np.count_nonzero(of != np.arange(first, first + len(of))))
            self.expected[session] = int(of[-1]) + 1
        self.bytes[band] += data.nbytes
        self.messages += len(batch)


def subscribe(client: penstock.Client, channel: str, _count: int) -> None:
    subscriptions = [client.add_subscription(channel, stream_id) for _, _, stream_id in BANDS]
    say("ready")
    told = Input()
    check = Check()

    def report() -> None:
        say("second", at_s=time.monotonic(), bytes=check.bytes, wrong=check.wrong)

    seconds = Seconds(report)
    empty_since: float | None = None
    while not (told.over.is_set() and empty_since and time.monotonic() - empty_since > 1.0):
        found = 0
        for band, subscription in enumerate(subscriptions):
            batch = subscription.poll_batch(2048)
            if len(batch):
                check.take(band, batch)
                found += len(batch)
        if found:
            empty_since = None
        else:
            empty_since = empty_since or time.monotonic()
            time.sleep(0.0005)
        seconds.look()
    say("done", messages=check.messages, wrong=check.wrong)


def probe(client: penstock.Client, channel: str, _count: int) -> None:
    publications = [
        client.add_exclusive_publication(with_priority(channel, priority), stream_id)
        for _, priority, stream_id in PROBES
    ]
    for publication in publications:
        publication.wait_connected(60.0)
    say("ready")
    told = Input()
    while not told.over.is_set():
        for publication in publications:
            publication.offer(time.monotonic_ns().to_bytes(8, "little"))
        time.sleep(PROBE_S)
    say("done")


def measure(client: penstock.Client, channel: str, _count: int) -> None:
    subscriptions = [client.add_subscription(channel, stream_id) for _, _, stream_id in PROBES]
    say("ready")
    told = Input()
    waits: list[list[float]] = [[] for _ in PROBES]

    def report() -> None:
        shown = {
            name: [median(found), quantiles(found, n=100)[98]] if len(found) > 1 else None
            for (name, _, _), found in zip(PROBES, waits, strict=True)
        }
        say("second", at_s=time.monotonic(), milliseconds=shown)
        for found in waits:
            found.clear()

    seconds = Seconds(report)
    while not told.over.is_set():
        some = 0
        for found, subscription in zip(waits, subscriptions, strict=True):
            with subscription.poll_batch(256) as batch:
                now_ns = time.monotonic_ns()
                found += [(now_ns - int.from_bytes(sent, "little")) / 1e6 for sent in batch]
                some += len(batch)
        if not some:
            subscriptions[0].wait(0.001)
        seconds.look()
    say("done")


ROLES: Final = {"pub": publish, "sub": subscribe, "probe": probe, "measure": measure}


def main() -> None:
    role, directory, channel, count = sys.argv[1:]
    with penstock.connect(directory, timeout_s=30.0) as client:
        ROLES[role](client, channel, int(count))


if __name__ == "__main__":
    main()
