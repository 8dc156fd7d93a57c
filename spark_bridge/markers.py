# SPDX-License-Identifier: Apache-2.0
"""Encode the markers with which a receiver distinguishes a complete part of an epoch from an
incomplete part.

The sink brackets what one attempt of one task publishes: BEGIN, the rows, COMMIT.  A batch write is
a job: its parts count when a JOB_COMMIT of the same query, epoch and run has come, which the driver
publishes when all tasks are done; JOB_ABORT takes them back.  Markers are ordinary messages whose
reserved value is :data:`RESERVED_VALUE` (rows have another) and which begin with :data:`MAGIC`.
Numbers are little-endian::

    offset  bytes  field
         0      8  magic, "PSPARKM1"
         8      1  version, 2
         9      1  kind: 1 BEGIN, 2 COMMIT, 3 JOB_COMMIT, 4 JOB_ABORT
        10      2  length of the key in bytes
        12      4  partition
        16      8  epoch: Spark's batch id; 0 for a batch write
        24      8  attempt: Spark's task attempt id, never used twice within a run
        32     16  query: Spark's query id, the same after a restart; of a batch write its job id
        48     16  run: Spark's run id, another after each restart; of a batch write its own
        64      8  messages of the part   (BEGIN: 0; JOB_COMMIT: parts of the job)
        72      8  payload bytes of them  (only COMMIT)
        80      4  CRC-32 of their payloads, one after another (only COMMIT)
        84      4  flags: 1 the part belongs to a job
        88      8  rows of the part; with Arrow batches more than messages (only COMMIT)
        96      8  sum of the digests of the rows, modulo 2^64 (only COMMIT)
       104      -  the key, when the sink has a publication per key

Markers of version 1 end at byte 88. In version 1, only the kinds 1 and 2 exist, and there are no
flags. Readers still accept version 1.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import attrs

from penstock.core.errors import PenstockError

MAGIC: Final = b"PSPARKM1"
#: Reserved value of each marker; positive, so that signed and unsigned readers agree.
RESERVED_VALUE: Final = int.from_bytes(MAGIC, "little")
#: Beside an Arrow schema that the sink sends before the batches of a part.
SCHEMA_VALUE: Final = int.from_bytes(b"PSPARKS1", "little")
VERSION: Final = 2
MAX_KEY_BYTES: Final = 1024
_FIRST: Final = struct.Struct("<8sBBHIqq16s16sQQII")        # version 1
_MORE: Final = struct.Struct("<QQ")
HEAD_BYTES: Final = _FIRST.size + _MORE.size
_JOB_FLAG: Final = 1


class MarkerError(PenstockError, ValueError):
    """Raised for a message that is not a marker, or is a marker of a later version. The text says
    which."""


class Kind(enum.IntEnum):
    BEGIN = 1
    COMMIT = 2
    JOB_COMMIT = 3
    JOB_ABORT = 4


def _below(end: int) -> Callable[[Any, attrs.Attribute[int], int], Any]:
    """Check that a value is in [0, bound)."""
    return attrs.validators.and_(attrs.validators.ge(0), attrs.validators.lt(end))


@attrs.frozen(kw_only=True)
class Part:
    """Identifies a part of an epoch: the messages that one attempt of a task publishes in one
    session."""

    query: UUID
    run: UUID
    epoch: int = attrs.field(validator=_below(2**63))
    partition: int = attrs.field(validator=_below(2**32))
    attempt: int = attrs.field(validator=_below(2**63))
    key: bytes = attrs.field(default=b"", validator=attrs.validators.max_len(MAX_KEY_BYTES))
    job: bool = False
    """Whether it counts only when its job is committed."""

    def __str__(self) -> str:
        key = f" key {self.key!r}" if self.key else ""
        return (
            f"query {self.query} epoch {self.epoch} partition {self.partition}{key} "
            f"attempt {self.attempt}"
        )


@attrs.frozen(kw_only=True)
class Content:
    """Content of a COMMIT marker: number, total bytes and checksum of the rows since the BEGIN
    marker of the part."""

    messages: int = attrs.field(default=0, validator=_below(2**64))
    bytes: int = attrs.field(default=0, validator=_below(2**64))
    crc: int = attrs.field(default=0, validator=_below(2**32))
    rows: int = attrs.field(default=0, validator=_below(2**64))
    """With Arrow batches more than messages."""
    digest: int = attrs.field(default=0, validator=_below(2**64))
    """Of the rows in any order."""

    def arrived_as(self, other: Content) -> bool:
        """Return whether ``self`` and ``other`` agree. The receiver has computed ``self`` from the
        messages that arrived; the sink has stated ``other``.
        """
        return (self.messages, self.bytes, self.crc) == (other.messages, other.bytes, other.crc)

    def repeats(self, other: Content) -> bool:
        """Return whether ``self`` and ``other`` describe the same rows. The order of the rows may
        differ, because Spark keeps no order after a shuffle."""
        if self.arrived_as(other):
            return True
        known = self.rows > 0 and self.digest != 0
        return known and (self.rows, self.digest) == (other.rows, other.digest)


@attrs.frozen(kw_only=True)
class Marker:
    """A marker. The markers BEGIN and JOB_ABORT have no content. In a JOB_COMMIT marker, the field
    ``messages`` of the content states the number of parts of the batch write."""

    kind: Kind
    part: Part
    content: Content = Content()


def encode(marker: Marker) -> bytes:
    """Return the marker as a message."""
    part, content = marker.part, marker.content
    head = _FIRST.pack(
        MAGIC, VERSION, marker.kind, len(part.key), part.partition, part.epoch, part.attempt,
        part.query.bytes, part.run.bytes, content.messages, content.bytes, content.crc,
        _JOB_FLAG if part.job else 0,
    )  # fmt: skip
    return head + _MORE.pack(content.rows, content.digest) + part.key


def decode(message: bytes | memoryview) -> Marker:
    """Decode the marker in a message.

    :raises MarkerError: the message is not a marker.
    """
    length = len(message)
    if length < _FIRST.size:
        raise MarkerError(f"a marker has at least {_FIRST.size} bytes, not {length}")
    (
        magic, version, kind, key_bytes, partition, epoch, attempt, query, run, messages, size, crc,
        flags,
    ) = _FIRST.unpack_from(message)  # fmt: skip
    if magic != MAGIC:
        raise MarkerError(f"a marker begins with {MAGIC!r}, not {magic!r}")
    if version not in (1, VERSION):
        raise MarkerError(f"marker version {version}: this penstock reads versions 1 and {VERSION}")
    head = HEAD_BYTES if version == VERSION else _FIRST.size
    if kind not in ((1, 2) if version == 1 else tuple(Kind)):
        raise MarkerError(f"marker kind {kind}: 1 (BEGIN) to 4 (JOB_ABORT) are known")
    if length != head + key_bytes or key_bytes > MAX_KEY_BYTES:
        raise MarkerError(f"a key of {key_bytes} bytes does not fit a marker of length {length}")
    if epoch < 0 or attempt < 0 or flags > (_JOB_FLAG if version == VERSION else 0):
        raise MarkerError(
            f"epoch {epoch}, attempt {attempt}, flags {flags}: no sink writes such a marker"
        )
    rows, digest = _MORE.unpack_from(message, _FIRST.size) if version == VERSION else (0, 0)
    content = Content(messages=messages, bytes=size, crc=crc, rows=rows, digest=digest)
    if kind in (Kind.BEGIN, Kind.JOB_ABORT) and content != Content():
        raise MarkerError(f"the marker {Kind(kind).name} states rows, but must state none")
    part = Part(
        query=UUID(bytes=query), run=UUID(bytes=run), epoch=epoch, partition=partition,
        attempt=attempt, key=bytes(message[head:]), job=bool(flags & _JOB_FLAG),
    )
    return Marker(kind=Kind(kind), part=part, content=content)
