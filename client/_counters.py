# SPDX-License-Identifier: Apache-2.0
"""Add counters of the application, and read all counters of the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.config.protocol import control
from penstock.core import client as core
from penstock.core.errors import ClosedError, InvalidArgument

if TYPE_CHECKING:
    from penstock.client._client import Client

_I64_END = 2**63


class Counter:
    """A 64-bit counter in shared memory, which this client writes and every process can read."""

    __slots__ = ("__weakref__", "_client", "_handle", "_label", "_ready")

    def __init__(self, client: Client, label: str, ready: control.CounterReady) -> None:
        self._client = client
        self._label = label
        self._ready = ready
        self._handle: core.ClientHandle | None = client._native()

    @property
    def label(self) -> str:
        return self._label

    @property
    def id(self) -> int:
        """Index among the daemon's counters."""
        return self._ready.counter_id

    @property
    def registration_id(self) -> int:
        return self._ready.registration_id

    @property
    def is_closed(self) -> bool:
        return self._handle is None

    def get(self) -> int:
        return core.client_counter_get(self._open(), self._ready.counter_id)

    def set(self, value: int) -> None:
        """Store a signed 64-bit value."""
        core.client_counter_set(self._open(), self._ready.counter_id, _i64(value))

    def add(self, delta: int) -> int:
        """Add a number to the counter atomically; return the counter's new value."""
        return core.client_counter_add(self._open(), self._ready.counter_id, _i64(delta))

    def increment(self) -> int:
        """Add 1 to the counter; return the counter's new value."""
        return self.add(1)

    def close(self) -> None:
        """Remove the counter. Idempotent."""
        if self._handle is not None:
            self._client._remove(
                self, control.RemoveCounter(registration_id=self.registration_id)
            )

    def __enter__(self) -> Counter:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _renew(self, ready: control.CounterReady) -> None:
        """Move the value to the cell that a new daemon allocated."""
        value = self.get()
        self._handle, self._ready = self._client._native(), ready
        self.set(value)

    def _drop(self) -> None:
        self._handle = None

    def _open(self) -> core.ClientHandle:
        if self._handle is None:
            self._client._check()
            raise ClosedError("the counter is closed")
        return self._handle

    def _repr_html_(self) -> str:
        from penstock.client._html import counter_html

        return counter_html(self)

    def __repr__(self) -> str:
        return f"<Counter {self.id} {self._label!r}{' closed' if self.is_closed else ''}>"


class Counters:
    """The values of all counters of the daemon, by id, read from shared memory."""

    __slots__ = ("_client",)

    def __init__(self, client: Client) -> None:
        self._client = client

    def __len__(self) -> int:
        """Return the number of counters for which ``cnc.dat`` has room, including unused
        counters."""
        return core.client_counter_count(self._client._native())

    def __getitem__(self, counter_id: int) -> int:
        count = len(self)
        if not 0 <= counter_id < count:
            raise IndexError(f"counter id {counter_id} is not in [0, {count})")
        return core.client_counter_get(self._client._native(), counter_id)


def _i64(value: int) -> int:
    if not -_I64_END <= value < _I64_END:
        raise InvalidArgument(f"a counter holds 64 bits: {value} does not fit")
    return value
