# SPDX-License-Identifier: Apache-2.0
"""The load loops of ``penstock bench``: each call offers or polls messages in C for some time.

The loops are in a separate extension, ``penstock._core_bench``. This extension calls the core's
functions through the table of ``ps_fast.h``, as the fast path of the Python client does. The
benchmark therefore measures the same core that applications use, and the core of applications does
not contain the loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from penstock import _core_bench
from penstock.core._lib import CORE
from penstock.core.library import Handle

_ffi: Final[Any] = _core_bench.ffi
_lib: Final[Any] = _core_bench.lib
CORE.check(
    _lib.ps_bench_connect(CORE.lib.ps_fast_table()),
    "the load loops and the core are of different builds: reinstall penstock",
)

MAX_MESSAGES: Final = 2**62


@attrs.frozen(kw_only=True)
class Totals:
    """Progress of a load loop so far."""

    messages: int
    payload_bytes: int
    refusals: int
    out_of_order: int
    hash: int


class Load:
    """Totals (messages, bytes) of one direction of one stream: sending or receiving. Each method
    offers or polls messages, and adds their number and their bytes to the totals."""

    __slots__ = ("_result",)

    def __init__(self) -> None:
        self._result = _ffi.new("ps_bench_result_t *")

    @property
    def messages(self) -> int:
        count: int = self._result.messages
        return count

    def totals(self) -> Totals:
        result = self._result
        return Totals(
            messages=result.messages,
            payload_bytes=result.bytes,
            refusals=result.refusals,
            out_of_order=result.out_of_order,
            hash=result.hash,
        )

    def publish(self, client: Handle, pub: Handle, size: int, until_ns: int) -> None:
        """Offer messages as fast as the stream accepts them, until a time on the monotonic
        clock."""
        CORE.check(
            _lib.ps_bench_publish(
                client.native, pub.native, size, until_ns, MAX_MESSAGES, self._result
            ),
            "publishing",
        )

    def receive(
        self, client: Handle, sub: Handle, until_ns: int, max_messages: int = MAX_MESSAGES
    ) -> None:
        """Poll until a time on the monotonic clock, or until ``max_messages`` messages were
        received in all."""
        CORE.check(
            _lib.ps_bench_receive(
                client.native, sub.native, until_ns, max_messages, self._result
            ),
            "receiving",
        )

    def fold(self, data: Any, size: int) -> None:
        """Add the received messages in ``data`` to the totals. Each message has ``size`` bytes,
        without space between messages."""
        with _ffi.from_buffer("uint8_t[]", data) as base:
            _lib.ps_bench_fold(base, size, len(base) // size, self._result)

    def fold_messages(self, messages: Any, count: int) -> None:
        """Add the messages that a poll returned in the native array ``messages``."""
        _lib.ps_bench_fold_messages(messages, count, self._result)


class ManyLoads:
    """Totals of several streams, which one thread publishes or polls in turn."""

    __slots__ = ("_count", "_handles", "_results")

    def __init__(self, kind: str, handles: Sequence[Handle]) -> None:
        """``kind`` is ``pub`` or ``sub``."""
        self._count = len(handles)
        self._handles = _ffi.new(f"ps_{kind}_t *[]", [handle.native for handle in handles])
        self._results = _ffi.new("ps_bench_result_t[]", self._count)

    @property
    def messages(self) -> int:
        return sum(self._results[index].messages for index in range(self._count))

    def hashes(self) -> list[tuple[int, int]]:
        """(messages, hash) of each stream."""
        return [(self._results[i].messages, self._results[i].hash) for i in range(self._count)]

    def publish_paced(
        self, client: Handle, size: int, per_tick: int, tick_ns: int, until_ns: int
    ) -> None:
        CORE.check(
            _lib.ps_bench_publish_paced(
                client.native, self._handles, self._count, size, per_tick, tick_ns, until_ns,
                self._results,
            ),
            "publishing",
        )

    def receive(self, client: Handle, until_ns: int) -> None:
        CORE.check(
            _lib.ps_bench_receive_many(
                client.native, self._handles, self._count, until_ns, self._results
            ),
            "receiving",
        )


def ping(
    client: Handle, pub: Handle, sub: Handle, size: int, count: int, spin_ns: int
) -> list[int]:
    """Send ``count`` messages to an application that returns them, and measure each round trip in
    nanoseconds."""
    times = _ffi.new("int64_t[]", count)
    code = _lib.ps_bench_ping(
        client.native, pub.native, sub.native, size, count, spin_ns, times
    )
    CORE.check(code, "pinging")
    return list(times)


def pong(client: Handle, pub: Handle, sub: Handle, until_ns: int, spin_ns: int) -> None:
    """Echo until a monotonic time."""
    code = _lib.ps_bench_pong(client.native, pub.native, sub.native, until_ns, spin_ns)
    CORE.check(code, "echoing")


def fill(block: Any, size: int, first: int) -> None:
    """Write consecutive messages of ``size`` bytes, from number ``first`` on, into ``block``."""
    with _ffi.from_buffer("uint8_t[]", block) as base:
        _lib.ps_bench_fill(base, size, first, len(base) // size)


#: ``expected_hash(count)``: hash of a receiver that got the first ``count`` messages.
expected_hash: Final[Callable[[int], int]] = _lib.ps_bench_expected
