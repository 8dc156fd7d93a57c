# SPDX-License-Identifier: Apache-2.0
"""Implement the client's side of the protocol between the benchmark's harness and a measured
client.

Each measured client (of penstock or of another product) exchanges lines of text with the harness. A
publisher says ``ready``, waits for ``go``, sends messages until it reads ``stop``, and says
``done`` with its count of messages. A subscriber says ``ready``, and starts to measure time at the
first message. The measured time follows the warm-up. When the measured time begins, and when it
ends, the subscriber says ``mark`` with the number of messages that it has received so far. When the
publisher is done, the harness sends the publisher's count to the subscriber. When the subscriber
has received this number of messages, or has waited for them too long, it says ``done`` with the
hash of its messages. A pinger says ``ready``, waits for ``go``, says ``mark`` after its warm-up,
and at the end ``done`` with percentiles of the round trips. A ponger says ``ready`` and sends each
message back. Every client ends when its standard input ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.core.bench import Load, fill

SLICE_NS: Final = 20_000_000
DRAIN_NS: Final = 5_000_000_000
BLOCK_MESSAGES: Final = 1024
FOLD_BYTES: Final = 1 << 16


def say(event: str, **facts: Any) -> None:
    """Write one line to the harness."""
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


class Orders:
    """Reads the harness's orders (``go``, ``stop`` and others) in a separate thread."""

    def __init__(self) -> None:
        self._go = threading.Event()
        self.stopped = False
        self.expected: int | None = None
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            word, _space, value = line.strip().partition(" ")
            if word == "go":
                self._go.set()
            elif word == "stop":
                self.stopped = True
            elif word == "expect":
                self.expected = int(value)
        os._exit(0)

    def wait_go(self) -> None:
        self._go.wait()


class Measure:
    """A subscriber's clock and marks."""

    def __init__(self, orders: Orders, *, warmup_s: float, seconds: float) -> None:
        self._orders = orders
        self._spans = [int(warmup_s * 1e9), int(seconds * 1e9)]
        self._next_ns: int | None = None
        self._drain_until_ns: int | None = None

    def tick(self, messages: int) -> bool:
        """Report the subscriber's count of messages; the subscriber must call the method every few
        milliseconds. Return False when the subscriber has received all messages of the publisher,
        or has waited for them too long."""
        now_ns = time.monotonic_ns()
        if self._next_ns is None:
            if messages:
                self._next_ns = now_ns + self._spans.pop(0)
        elif now_ns >= self._next_ns and self._orders.expected is None:
            say("mark", messages=messages, ns=now_ns)
            self._next_ns = now_ns + self._spans.pop(0) if self._spans else 2**63
        expected = self._orders.expected
        if expected is None:
            return True
        if self._drain_until_ns is None:
            self._drain_until_ns = now_ns + DRAIN_NS
        return messages < expected and now_ns < self._drain_until_ns

    @property
    def slice_ns(self) -> int:
        """Return the monotonic time, in ns, at which a receive loop in C must return, so that
        Python can call :meth:`tick`."""
        soon = time.monotonic_ns() + SLICE_NS
        return soon if self._next_ns is None else min(soon, self._next_ns)


def finish(load: Load, **facts: Any) -> None:
    """A subscriber's last line."""
    totals = load.totals()
    say("done", messages=totals.messages, hash=f"{totals.hash:016x}",
        out_of_order=totals.out_of_order, **facts)


class Collector:
    """Counts and hashes the messages of a receiver in Python. The message handler only appends each
    message to a buffer; the messages are counted and hashed later.

    A message handler calls ``append`` for each message. To save time, ``append`` is not a Python
    function: it is the method ``extend`` of the buffer (a bytearray).
    """

    def __init__(self, size: int) -> None:
        self.load = Load()
        self._size = size
        self._bytes = bytearray()
        self.append: Callable[[Any], None] = self._bytes.extend

    @property
    def messages(self) -> int:
        return self.load.messages + len(self._bytes) // self._size

    def settle(self, *, at_least: int = FOLD_BYTES) -> None:
        """If the collected messages together have at least ``at_least`` bytes, add these messages
        to the hash.
        """
        if len(self._bytes) >= at_least:
            self.load.fold(self._bytes, self._size)
            self._bytes.clear()


class Source:
    """Provides the messages that a publisher sends, in order. C code writes the messages into a
    block of memory, many messages at a time.
    """

    def __init__(self, size: int, block_messages: int = BLOCK_MESSAGES) -> None:
        self._size = size
        self._count = block_messages
        self._block = bytearray(size * block_messages)
        self._next = 0

    def block(self) -> bytearray:
        """Return one block with the next messages, without space between the messages. The block
        stays valid until the next call.
        """
        fill(self._block, self._size, self._next)
        self._next += self._count
        return self._block

    def messages(self) -> list[bytes]:
        """Return the messages of the next block as a list of bytes objects."""
        block, size = bytes(self.block()), self._size
        return [block[at : at + size] for at in range(0, len(block), size)]


def percentiles(times_ns: Sequence[int]) -> dict[str, float]:
    """p50_us, p99_us, p999_us."""
    ordered = sorted(times_ns)
    last = len(ordered) - 1
    return {
        name: ordered[min(last, int(share * len(ordered)))] / 1000
        for name, share in (("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999))
    }


def ping_loop(
    orders: Orders, trip: Callable[[int], list[int]], *, warmup_s: float, seconds: float
) -> None:
    """Run the pinger of a benchmark. The callable ``trip(n)`` must make n round trips and return
    their durations in ns."""
    orders.wait_go()
    _until(trip, warmup_s)
    begin_ns = time.monotonic_ns()
    say("mark", messages=0, ns=begin_ns)
    times_ns = _until(trip, seconds)
    end_ns = time.monotonic_ns()
    say("mark", messages=len(times_ns), ns=end_ns)
    say("done", messages=len(times_ns), **percentiles(times_ns))


def _until(trip: Callable[[int], list[int]], seconds: float) -> list[int]:
    until_ns = time.monotonic_ns() + int(seconds * 1e9)
    times_ns: list[int] = []
    while time.monotonic_ns() < until_ns:
        times_ns += trip(100)
    return times_ns
