# SPDX-License-Identifier: Apache-2.0
"""The load loops of ``penstock bench``: one crossing runs a slice of the load in C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from penstock.core._lib import ffi, lib
from penstock.core.client import raise_native

MAX_MESSAGES: Final = 2**62


@attrs.frozen(kw_only=True)
class Totals:
    """What a load loop has moved so far."""

    messages: int
    payload_bytes: int
    refusals: int
    out_of_order: int
    hash: int


class Load:
    """Totals of one direction of one stream, added to by the loops below."""

    __slots__ = ("_result",)

    def __init__(self) -> None:
        self._result = ffi.new("ps_bench_result_t *")

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

    def publish(self, client: Any, pub: Any, size: int, until_ns: int) -> None:
        """Offers as fast as the stream takes it, until a monotonic time."""
        raise_native(
            lib.ps_bench_publish(client, pub, size, until_ns, MAX_MESSAGES, self._result),
            "publishing",
        )

    def receive(
        self, client: Any, sub: Any, until_ns: int, max_messages: int = MAX_MESSAGES
    ) -> None:
        """Polls until a monotonic time or until there are ``max_messages`` in all."""
        raise_native(
            lib.ps_bench_receive(client, sub, until_ns, max_messages, self._result), "receiving"
        )

    def fold(self, data: Any, size: int) -> None:
        """Adds received messages of ``size`` bytes that lie back to back in ``data``."""
        with ffi.from_buffer("uint8_t[]", data) as base:
            lib.ps_bench_fold(base, size, len(base) // size, self._result)

    def fold_messages(self, messages: Any, count: int) -> None:
        """Adds what a poll put into ``messages``, the native array."""
        lib.ps_bench_fold_messages(messages, count, self._result)


class ManyLoads:
    """Totals of several streams that one thread serves in turn."""

    __slots__ = ("_count", "_handles", "_results")

    def __init__(self, kind: str, handles: Sequence[Any]) -> None:
        """``kind`` is ``pub`` or ``sub``."""
        self._count = len(handles)
        self._handles = ffi.new(f"ps_{kind}_t *[]", list(handles))
        self._results = ffi.new("ps_bench_result_t[]", self._count)

    @property
    def messages(self) -> int:
        return sum(self._results[index].messages for index in range(self._count))

    def hashes(self) -> list[tuple[int, int]]:
        """(messages, hash) of each stream."""
        return [(self._results[i].messages, self._results[i].hash) for i in range(self._count)]

    def publish_paced(
        self, client: Any, size: int, per_tick: int, tick_ns: int, until_ns: int
    ) -> None:
        raise_native(
            lib.ps_bench_publish_paced(
                client, self._handles, self._count, size, per_tick, tick_ns, until_ns,
                self._results,
            ),
            "publishing",
        )

    def receive(self, client: Any, until_ns: int) -> None:
        raise_native(
            lib.ps_bench_receive_many(
                client, self._handles, self._count, until_ns, self._results
            ),
            "receiving",
        )


def ping(client: Any, pub: Any, sub: Any, size: int, count: int, spin_ns: int) -> list[int]:
    """Times of ``count`` round trips in nanoseconds."""
    times = ffi.new("int64_t[]", count)
    raise_native(lib.ps_bench_ping(client, pub, sub, size, count, spin_ns, times), "pinging")
    return list(times)


def pong(client: Any, pub: Any, sub: Any, until_ns: int, spin_ns: int) -> None:
    """Echoes until a monotonic time."""
    raise_native(lib.ps_bench_pong(client, pub, sub, until_ns, spin_ns), "echoing")


def fill(block: Any, size: int, first: int) -> None:
    """Writes consecutive messages of ``size`` bytes, from number ``first`` on, into ``block``."""
    with ffi.from_buffer("uint8_t[]", block) as base:
        lib.ps_bench_fill(base, size, first, len(base) // size)


#: ``expected_hash(count)``: what a receiver of the first ``count`` messages ends with.
expected_hash: Final[Callable[[int], int]] = lib.ps_bench_expected
