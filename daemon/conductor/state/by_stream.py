# SPDX-License-Identifier: Apache-2.0
"""A table of objects that each belong to a stream, with an index by stream id."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, MutableMapping
from typing import Protocol, TypeVar


class OfStream(Protocol):
    """An object whose stream id does not change while it is in a table."""

    stream_id: int


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=OfStream)


class ByStream(MutableMapping[K, V]):
    """A mapping that iterates in the order of insertion. The duration of :meth:`of_stream` depends
    only on how many objects the stream has, and not on the number of streams."""

    __slots__ = ("_all", "_streams")

    def __init__(self) -> None:
        self._all: dict[K, V] = {}
        self._streams: dict[int, dict[K, V]] = {}

    def of_stream(self, stream_id: int) -> list[V]:
        """Return the objects of one stream, in the order of insertion. The list is a copy, so the
        table may change while the caller iterates over the list."""
        found = self._streams.get(stream_id)
        return [] if found is None else list(found.values())

    def __getitem__(self, key: K) -> V:
        return self._all[key]

    def __setitem__(self, key: K, value: V) -> None:
        old = self._all.get(key)
        if old is not None and old.stream_id != value.stream_id:
            self._leave(key, old)
        self._all[key] = value
        self._streams.setdefault(value.stream_id, {})[key] = value

    def __delitem__(self, key: K) -> None:
        self._leave(key, self._all.pop(key))

    def _leave(self, key: K, value: V) -> None:
        same = self._streams[value.stream_id]
        del same[key]
        if not same:
            del self._streams[value.stream_id]

    def __iter__(self) -> Iterator[K]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, key: object) -> bool:
        return key in self._all
