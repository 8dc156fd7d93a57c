# SPDX-License-Identifier: Apache-2.0
"""Find the parts that a penstock sink has published in a range of a session, and record the parts
that a query has read.

This module reads no stream and no clock: its callers pass it all markers. In a session, a sink
publishes one part after the other, each between a BEGIN and a COMMIT marker. If the next BEGIN
marker arrives before the part's COMMIT marker, the part is *broken*. The last part of a range may
be open, because its COMMIT can still arrive. The offsets of a reading query contain a record of the
parts that it has read (:class:`Done`). With the record of read parts, the source recognises a
repeated part after a restart.
"""

from __future__ import annotations

import enum
import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import attrs

from penstock.core.errors import InvalidArgument
from penstock.spark_bridge.markers import Content, Kind, Marker, Part

_RECENT: Final = 2              # epochs of a query of which the content is known
_MOST_RUNS: Final = 256         # of a query, in an offset
_MOST_QUERIES: Final = 64
_MOST_JOBS: Final = 64
_RUN: Final = re.compile(r"(\d+)(?:-(\d+))?")


class Stretch(enum.Enum):
    """Kind of a piece of a session: a part, rows that belong to no part, or the end of a batch
    write.
    """

    PLAIN = "rows outside of parts"
    PART = "a complete part"
    BROKEN = "rows that no COMMIT will follow"
    OPEN = "a part whose COMMIT is not there yet"
    JOB_END = "the end of a batch write"


@attrs.frozen(kw_only=True)
class Mark:
    """A marker in a session."""

    begin: int
    end: int
    marker: Marker


@attrs.frozen(kw_only=True)
class Piece:
    """A stretch of a session."""

    kind: Stretch
    start: int
    end: int
    marker: Marker | None = None


def pieces(marks: Sequence[Mark], start: int, end: int) -> Iterator[Piece]:
    """Divide the range [start, end) of a session into pieces, at the markers in this range. A piece
    is a part, or a range that belongs to no part."""
    begun: Mark | None = None
    at = start
    for mark in marks:
        kind = mark.marker.kind
        whole = begun is not None and kind is Kind.COMMIT and begun.marker.part == mark.marker.part
        if begun is not None and whole:
            yield Piece(kind=Stretch.PART, start=at, end=mark.end, marker=mark.marker)
        elif kind is Kind.COMMIT:
            yield Piece(kind=Stretch.BROKEN, start=at, end=mark.end, marker=mark.marker)
        elif at < mark.begin:
            lost = Stretch.PLAIN if begun is None else Stretch.BROKEN
            yield Piece(kind=lost, start=at, end=mark.begin)
        begun, at = (mark, mark.begin) if kind is Kind.BEGIN else (None, mark.end)
        if kind in (Kind.JOB_COMMIT, Kind.JOB_ABORT):
            yield Piece(kind=Stretch.JOB_END, start=mark.begin, end=mark.end, marker=mark.marker)
    if begun is not None:
        yield Piece(kind=Stretch.OPEN, start=at, end=end, marker=begun.marker)
    elif at < end:
        yield Piece(kind=Stretch.PLAIN, start=at, end=end)


# ---- what was read -------------------------------------------------------------------------------


def place_of(part: Part) -> str:
    """Return the name of a part. All attempts of a part have the same name. The name consists of
    the partition and, if the part has a key, the digest of the key.
    """
    if not part.key:
        return str(part.partition)
    return f"{part.partition}.{hashlib.blake2b(part.key, digest_size=8).hexdigest()}"


@attrs.define
class _Query:
    """What was taken of a query: ``runs`` of epochs with the same places, (first, last, names), and
    ``epochs`` with the content of each place (empty: not kept), which come before the runs."""

    runs: list[tuple[int, int, str]] = attrs.Factory(list)
    epochs: dict[int, dict[str, str]] = attrs.Factory(dict)
    floor: int = 0
    number: int = 0

    def places(self, epoch: int) -> Mapping[str, str]:
        found = self.epochs.get(epoch)
        if found is not None:
            return found
        return next((
            dict.fromkeys(_places(names), "") for first, last, names in self.runs
            if first <= epoch <= last
        ), {})

    def add(self, epoch: int, place: str, text: str) -> None:
        self.epochs[epoch] = {**self.places(epoch), place: text}

    def folded(self) -> _Query:
        """Return a shorter copy of this record. In the copy, only the latest two epochs have an
        entry of their own. Consecutive older epochs with the same parts share one entry (a run). If
        the copy would have too many runs, it omits the oldest runs."""
        recent = sorted(self.epochs)[-_RECENT:]
        runs = list(self.runs)
        for epoch in sorted(self.epochs):
            runs = _without(runs, epoch)
            if epoch not in recent:
                runs.append((epoch, epoch, _names(self.epochs[epoch])))
        merged: list[tuple[int, int, str]] = []
        for first, last, names in sorted(runs):
            if merged and merged[-1][1] == first - 1 and merged[-1][2] == names:
                merged[-1] = (merged[-1][0], last, names)
            else:
                merged.append((first, last, names))
        floor = self.floor
        if len(merged) > _MOST_RUNS:
            merged = merged[-_MOST_RUNS:]
            floor = max(floor, merged[0][0])
        return _Query(
            runs=merged, epochs={epoch: self.epochs[epoch] for epoch in recent}, floor=floor,
            number=self.number,
        )


def _without(runs: list[tuple[int, int, str]], epoch: int) -> list[tuple[int, int, str]]:
    kept = []
    for first, last, names in runs:
        if not first <= epoch <= last:
            kept.append((first, last, names))
            continue
        if first < epoch:
            kept.append((first, epoch - 1, names))
        if epoch < last:
            kept.append((epoch + 1, last, names))
    return kept


@attrs.define
class Done:
    """Record of the parts that the reading query has read. The stored record covers only the 64
    writing queries and the 64 batch writes (jobs) whose parts were read last.
    """

    _queries: dict[UUID, _Query] = attrs.Factory(dict)
    _jobs: dict[tuple[UUID, int], None] = attrs.Factory(dict)
    _begun: dict[tuple[UUID, int], UUID] = attrs.Factory(dict)

    def run_of(self, query: UUID, epoch: int) -> UUID | None:
        """Return the run of a batch write of which the query has read some parts, and has not read
        all. The other parts must come from the same run, because another run may divide the rows
        differently. Return None if there is no such run.
        """
        return self._begun.get((query, epoch))

    def has_job(self, part: Part) -> bool:
        """Whether the query has read all parts of the batch write to which this part belongs."""
        return (part.query, part.epoch) in self._jobs

    def knows(self, part: Part) -> bool:
        """Whether the reading query has read an attempt of this part. All attempts of a part have
        the same writing query, epoch, partition and key."""
        found = self._queries.get(part.query)
        return found is not None and place_of(part) in found.places(part.epoch)

    def is_forgotten(self, part: Part) -> bool:
        """Whether the epoch of this part is so old that the record no longer covers it."""
        found = self._queries.get(part.query)
        return found is not None and part.epoch < found.floor

    def differs(self, part: Part, content: Content) -> bool:
        """Whether the query has read an earlier attempt of this part, and the rows of that attempt
        differ.
        """
        before = self._queries[part.query].places(part.epoch)[place_of(part)]
        now = _text(content)
        return bool(before) and bool(now) and before != now

    def add(self, part: Part, content: Content) -> None:
        """The part was taken."""
        number = max((known.number for known in self._queries.values()), default=0)
        query = self._queries.setdefault(part.query, _Query())
        query.number = number + 1
        query.add(part.epoch, place_of(part), _text(content))
        if part.job:
            self._begun[(part.query, part.epoch)] = part.run
            while len(self._begun) > _MOST_JOBS:
                del self._begun[next(iter(self._begun))]

    def places(self, part: Part) -> int:
        """Return how many parts of the same writing query and epoch the reading query has read."""
        found = self._queries.get(part.query)
        return 0 if found is None else len(found.places(part.epoch))

    def add_job(self, part: Part) -> None:
        """Record that the reading query has read all parts of the batch write (job) to which
        ``part`` belongs. The record then drops its entries for the single parts of this job.
        """
        self._jobs[(part.query, part.epoch)] = None
        self._begun.pop((part.query, part.epoch), None)
        while len(self._jobs) > _MOST_JOBS:
            del self._jobs[next(iter(self._jobs))]
        query = self._queries.get(part.query)
        if query is not None:
            query.epochs.pop(part.epoch, None)
            if not query.epochs and not query.runs:
                del self._queries[part.query]

    # ---- in an offset ----------------------------------------------------------------------------

    def to_plain(self) -> dict[str, Any]:
        """Return the record of read parts as plain data for JSON; empty if no part was read."""
        latest = sorted(self._queries.items(), key=lambda item: -item[1].number)[:_MOST_QUERIES]
        plain: dict[str, Any] = {
            "queries": {str(query): _query_plain(known) for query, known in sorted(latest)},
            "jobs": [f"{query}|{epoch}" for query, epoch in self._jobs],
            "begun": {f"{query}|{epoch}": str(run) for (query, epoch), run in self._begun.items()},
        }
        return {name: value for name, value in plain.items() if value}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Done:
        """Create the record from the result of :meth:`to_plain`.

        :raises InvalidArgument: ``plain`` has another form.
        """
        try:
            queries = {
                UUID(query): _query(known) for query, known in plain.get("queries", {}).items()
            }
            jobs = {_job(text): None for text in plain.get("jobs", ())}
            begun = {_job(text): UUID(run) for text, run in plain.get("begun", {}).items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidArgument(f"no parts of an offset: {error!r}") from None
        return cls(queries, jobs, begun)


def _job(text: str) -> tuple[UUID, int]:
    query, _, epoch = text.partition("|")
    return UUID(query), int(epoch)


def _text(content: Content) -> str:
    """Return what an offset keeps of a part's rows; empty: the marker (version 1) does not state
    its rows."""
    stated = content.rows > 0 or content.messages == 0
    return f"{content.rows}.{content.digest:x}" if stated else ""


def _query_plain(known: _Query) -> dict[str, Any]:
    known = known.folded()
    return {
        "floor": known.floor, "number": known.number, "runs": [list(run) for run in known.runs],
        "recent": {
            str(epoch): dict(sorted(places.items()))
            for epoch, places in sorted(known.epochs.items())
        },
    }


def _query(plain: Mapping[str, Any]) -> _Query:
    runs = [(int(first), int(last), str(names)) for first, last, names in plain["runs"]]
    epochs = {
        int(epoch): {str(place): str(text) for place, text in places.items()}
        for epoch, places in plain["recent"].items()
    }
    return _Query(
        runs=runs, epochs=epochs, floor=int(plain["floor"]), number=int(plain["number"])
    )


def _names(places: Mapping[str, str]) -> str:
    """``0-7 9 12.0a1b...``: partitions as ranges, then those with keys."""
    numbers = sorted(int(place) for place in places if "." not in place)
    words = []
    for _, group in itertools.groupby(enumerate(numbers), lambda item: item[1] - item[0]):
        run = [number for _, number in group]
        words.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return " ".join([*words, *sorted(place for place in places if "." in place)])


def _places(names: str) -> Iterator[str]:
    for word in names.split():
        match = _RUN.fullmatch(word)
        if match is None:
            yield word
        else:
            yield from map(str, range(int(match[1]), int(match[2] or match[1]) + 1))
