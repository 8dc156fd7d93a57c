# SPDX-License-Identifier: Apache-2.0
"""Offsets: how far a query is in each session of its streams.

Spark compares offsets as text, so the keys are sorted and nothing is in them that changes without
new data::

    {"aeron:ipc|1001|-77|12": 40960}

is channel, stream, session, initial term id, and the position between two messages up to which the
query has planned.  Session and initial term id are the log's identity: a publisher that starts anew
has others, and positions of the two are never confused.  Further entries make transitions explicit,
so that a range can be planned again from the two offsets alone, after a restart too:

- ``from|KEY``: the session appears for the first time in this offset, and is read from here;
- ``end|KEY`` stands in place of ``KEY``: the stream ends there; the next offset leaves it out;
- ``group|CHANNEL|STREAM``: which groups of which daemons hold the stream; when none of them is
  there any more, what they held may be lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from penstock.core.errors import InvalidArgument
from penstock.spark_bridge._options import StreamName

_FROM: Final = "from|"
_END: Final = "end|"
_GROUP: Final = "group|"


@attrs.frozen(kw_only=True, order=True)
class Session:
    """A log's identity, wherever it is held."""

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
        """:raises InvalidArgument: it is not what ``str`` makes."""
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


@attrs.frozen(kw_only=True)
class Offset:
    """See the module."""

    positions: Mapping[Session, int] = attrs.Factory(dict)
    begun: Mapping[Session, int] = attrs.Factory(dict)
    ended: frozenset[Session] = frozenset()
    groups: Mapping[StreamName, str] = attrs.Factory(dict)

    def to_plain(self) -> dict[str, Any]:
        """For Spark, keys sorted."""
        plain: dict[str, Any] = {
            f"{_END if session in self.ended else ''}{session}": position
            for session, position in self.positions.items()
        }
        plain |= {f"{_FROM}{session}": position for session, position in self.begun.items()}
        plain |= {
            f"{_GROUP}{stream.channel}|{stream.stream_id}": groups
            for stream, groups in self.groups.items()
        }
        return dict(sorted(plain.items()))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any] | None) -> Offset:
        """:raises InvalidArgument: not an offset of this source."""
        positions: dict[Session, int] = {}
        begun: dict[Session, int] = {}
        ended: set[Session] = set()
        groups: dict[StreamName, str] = {}
        for key, value in (plain or {}).items():
            if key.startswith(_GROUP):
                channel, _, stream_id = key.removeprefix(_GROUP).rpartition("|")
                groups[StreamName(channel=channel, stream_id=_integer(key, stream_id))] = str(value)
            elif key.startswith(_FROM):
                begun[Session.parse(key.removeprefix(_FROM))] = _position(key, value)
            else:
                session = Session.parse(key.removeprefix(_END))
                positions[session] = _position(key, value)
                if key.startswith(_END):
                    ended.add(session)
        return cls(positions=positions, begun=begun, ended=frozenset(ended), groups=groups)

    def check_streams(self, streams: tuple[StreamName, ...]) -> None:
        """Whether the offset speaks of the streams that the query names.

        :raises InvalidArgument: a checkpoint of another query.
        """
        strange = sorted(
            {s.stream for s in self.positions if s.stream not in streams}
            | {s for s in self.groups if s not in streams},
            key=str,
        )
        if strange:
            named = ", ".join(f"{s.channel} stream {s.stream_id}" for s in streams)
            raise InvalidArgument(
                f"the checkpoint was made for {strange[0].channel} stream {strange[0].stream_id}, "
                f"but the options channel and streamId name {named}: name the same streams, or "
                "give the query another checkpointLocation"
            )


def _integer(key: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidArgument(f"{key!r} is no key of an offset") from None


def _position(key: str, value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 2**63 or value % 32 != 0:
        raise InvalidArgument(f"{key}: {value!r} is no position: expected a multiple of 32")
    return value
