# SPDX-License-Identifier: Apache-2.0
"""Encode and decode offsets. An offset states the position of a query in each session of its
streams.

Spark compares offsets as text, so the keys are sorted, and no entry changes without new data::

    {"aeron:ipc|1001|-77|12": 40960}

An offset is a dictionary. The key of a session consists of the channel, the stream, the session id
and the initial term id. The value of a session's key is a position: the query has planned to read
the session up to this position. The position lies between two messages. Session id and initial term
id together identify a log. A publisher that restarts gets another session id, so the positions in
its old and its new log are never confused. An offset also has the following entries. With these
entries, the source can plan a batch again from its two offsets alone (start and end), even after a
restart:

- ``from|KEY``: exists only in the first offset that contains the session; the value is the position
  at which the query begins to read the session.
- ``end|KEY`` replaces the entry ``KEY`` if the stream has ended; the value is the end position.
  When the query has acknowledged the end of the session, the next offset has no entry for the
  session.
- ``group|CHANNEL|STREAM``: the consumer groups that retain the stream for the query, each with its
  daemon. If a group that retained the stream no longer exists, data of the stream may be lost.
- ``held|KEY``: exists only if a stream has several consumer groups; names the groups that retain
  the session from the position in the entry ``KEY`` on.
- ``left|KEY``: last position of an ended session, and a sequence number. The sequence numbers state
  the order in which the sessions have ended. If this session continues later at a higher position,
  the range from its last position to the higher position is missing.
- ``times|KEY``: arrival times of the messages in the batch that ends at this offset
  (:mod:`._times`). If Spark repeats the batch, its messages have the same times, on every host.
- ``skip|KEY``: the session contains markers of a penstock sink. The value of ``skip|KEY`` lists the
  ranges [start, end) that the batch skips, because they are not committed or are repeats.
- ``key|KEY``: the value of the sink's key column in this session, in hexadecimal digits.
- ``parts``: a record of the parts that the query has read (:mod:`._brackets`).
- ``records``: largest number of messages that one task of the batch reads, if the option
  maxRecordsPerPartition was given.
- ``tasks``: number of tasks of the batch that ends at this offset. A sink identifies rows by the
  task that publishes them. A repeated batch must therefore be split into the same tasks, even if
  the driver then has more cores.

The source can also read offsets of older versions, which do not have all of these entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from penstock.core.errors import InvalidArgument
from penstock.spark_bridge._brackets import Done
from penstock.spark_bridge._options import MOST_PARTITIONS, StreamName

_FROM: Final = "from|"
_END: Final = "end|"
_GROUP: Final = "group|"
_HELD: Final = "held|"
_LEFT: Final = "left|"
_TASKS: Final = "tasks"
_TIMES: Final = "times|"
_RECORDS: Final = "records"
_SKIP: Final = "skip|"
_PARTS: Final = "parts"
_KEY: Final = "key|"


@attrs.frozen(kw_only=True, order=True)
class Session:
    """Identifies a log. If two daemons have the same session, their logs have the same content."""

    channel: str
    stream_id: int
    session_id: int
    initial_term_id: int

    @property
    def stream(self) -> StreamName:
        return StreamName(channel=self.channel, stream_id=self.stream_id)

    def __str__(self) -> str:
        return f"{self.channel}|{self.stream_id}|{self.session_id}|{self.initial_term_id}"

    @classmethod
    def parse(cls, text: str) -> Session:
        """:raises InvalidArgument: the text does not identify a session."""
        parts = text.rsplit("|", 3)
        try:
            if not parts[0]:
                raise ValueError
            return cls(
                channel=parts[0], stream_id=int(parts[1]), session_id=int(parts[2]),
                initial_term_id=int(parts[3]),
            )
        except (ValueError, IndexError):
            raise InvalidArgument(
                f"{text!r} is no session: expected channel|stream|session|initial term id"
            ) from None


@attrs.frozen
class Left:
    """The last position of a session that has ended, and a sequence number. The sequence numbers
    state the order in which the sessions have ended.
    """

    position: int
    number: int              # in the order of leaving


@attrs.frozen(kw_only=True)
class Offset:
    """See the module."""

    positions: Mapping[Session, int] = attrs.Factory(dict)
    begun: Mapping[Session, int] = attrs.Factory(dict)
    ended: frozenset[Session] = frozenset()
    groups: Mapping[StreamName, str] = attrs.Factory(dict)
    held: Mapping[Session, str] = attrs.Factory(dict)
    left: Mapping[Session, Left] = attrs.Factory(dict)
    tasks: int = 0                  # 0: not decided
    records: int = 0                # 0: any number
    times: Mapping[Session, str] = attrs.Factory(dict)
    skipped: Mapping[Session, tuple[tuple[int, int], ...]] = attrs.Factory(dict)
    done: Done = attrs.Factory(Done)
    keys: Mapping[Session, bytes] = attrs.Factory(dict)

    def to_plain(self) -> dict[str, Any]:
        """Return the offset as a dictionary of plain data with sorted keys, as Spark stores it."""
        plain: dict[str, Any] = {
            f"{_END if session in self.ended else ''}{session}": position
            for session, position in self.positions.items()
        }
        plain |= {f"{_FROM}{session}": position for session, position in self.begun.items()}
        plain |= {
            f"{_GROUP}{stream.channel}|{stream.stream_id}": groups
            for stream, groups in self.groups.items()
        }
        plain |= {f"{_HELD}{session}": groups for session, groups in self.held.items()}
        plain |= {
            f"{_LEFT}{session}": [left.position, left.number]
            for session, left in self.left.items()
        }
        plain |= {f"{_TIMES}{session}": text for session, text in self.times.items()}
        plain |= {
            f"{_SKIP}{session}": [list(each) for each in found]
            for session, found in self.skipped.items()
        }
        plain |= {f"{_KEY}{session}": key.hex() for session, key in self.keys.items()}
        parts = self.done.to_plain()
        if parts:
            plain[_PARTS] = parts
        if self.tasks:
            plain[_TASKS] = self.tasks
        if self.records:
            plain[_RECORDS] = self.records
        return dict(sorted(plain.items()))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None) -> Offset:
        """:raises InvalidArgument: the text is not an offset of this source."""
        positions: dict[Session, int] = {}
        begun: dict[Session, int] = {}
        ended: set[Session] = set()
        groups: dict[StreamName, str] = {}
        held: dict[Session, str] = {}
        left: dict[Session, Left] = {}
        times: dict[Session, str] = {}
        skipped: dict[Session, tuple[tuple[int, int], ...]] = {}
        keys: dict[Session, bytes] = {}
        done = Done()
        tasks = records = 0
        for key, value in (plain or {}).items():
            if key == _TASKS:
                tasks = _count(key, value, MOST_PARTITIONS)
            elif key == _RECORDS:
                records = _count(key, value, 2**62)
            elif key == _PARTS:
                done = Done.from_plain(value)
            elif key.startswith(_KEY):
                keys[Session.parse(key.removeprefix(_KEY))] = _bytes(key, value)
            elif key.startswith(_SKIP):
                skipped[Session.parse(key.removeprefix(_SKIP))] = _stretches(key, value)
            elif key.startswith(_TIMES):
                times[Session.parse(key.removeprefix(_TIMES))] = str(value)
            elif key.startswith(_GROUP):
                channel, _, stream_id = key.removeprefix(_GROUP).rpartition("|")
                groups[StreamName(channel=channel, stream_id=_integer(key, stream_id))] = str(value)
            elif key.startswith(_FROM):
                begun[Session.parse(key.removeprefix(_FROM))] = _position(key, value)
            elif key.startswith(_HELD):
                held[Session.parse(key.removeprefix(_HELD))] = str(value)
            elif key.startswith(_LEFT):
                left[Session.parse(key.removeprefix(_LEFT))] = _left(key, value)
            else:
                session = Session.parse(key.removeprefix(_END))
                positions[session] = _position(key, value)
                if key.startswith(_END):
                    ended.add(session)
        return cls(
            positions=positions, begun=begun, ended=frozenset(ended), groups=groups, held=held,
            left=left, tasks=tasks, records=records, times=times, skipped=skipped, done=done,
            keys=keys,
        )

    def check_streams(self, streams: tuple[StreamName, ...], option: str = "") -> None:
        """Check that the offset belongs to the streams of the query.

        :param option: the option that states the offset; empty: the offset comes from the
            checkpoint.
        :raises InvalidArgument: the checkpoint or the option belongs to another query.
        """
        strange = sorted(
            {s.stream for s in self.positions if s.stream not in streams}
            | {s for s in self.groups if s not in streams},
            key=str,
        )
        if strange:
            named = ", ".join(f"{s.channel} stream {s.stream_id}" for s in streams)
            what = f"option {option} has" if option else "the checkpoint was made for"
            fix = "" if option else ", or give the query another checkpointLocation"
            raise InvalidArgument(
                f"{what} {strange[0].channel} stream {strange[0].stream_id}, but the options "
                f"channel and streamId name {named}: name the same streams{fix}"
            )


def _integer(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidArgument(f"{key!r} is not a key of an offset") from None


def _count(key: str, value: Any, most: int) -> int:
    if not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidArgument(f"{key}: {value!r}: expected 1 to {most}")
    return value


def _position(key: str, value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 2**63 or value % 32 != 0:
        raise InvalidArgument(f"{key}: {value!r} is not a position: expected a multiple of 32")
    return value


def _bytes(key: str, value: Any) -> bytes:
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        raise InvalidArgument(f"{key}: {value!r}: expected hexadecimal digits") from None


def _stretches(key: str, value: Any) -> tuple[tuple[int, int], ...]:
    found = []
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, list) or len(each) != 2:
            raise InvalidArgument(f"{key}: {each!r}: expected two positions")
        found.append((_position(key, each[0]), _position(key, each[1])))
    return tuple(found)


def _left(key: str, value: Any) -> Left:
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[1], int):
        raise InvalidArgument(f"{key}: {value!r}: expected a position and a number")
    return Left(_position(key, value[0]), value[1])
