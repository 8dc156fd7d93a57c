# SPDX-License-Identifier: Apache-2.0
"""The messages by which a receiver tells a complete part of an epoch from a partial one.

The sink brackets what one attempt of one task publishes: BEGIN, the rows, COMMIT.  Both markers are
ordinary messages whose reserved value is :data:`RESERVED_VALUE` (rows have 0) and which begin with
:data:`MAGIC`.  Numbers are little-endian::

    offset  bytes  field
         0      8  magic, "PSPARKM1"
         8      1  version, 1
         9      1  kind: 1 BEGIN, 2 COMMIT
        10      2  length of the key in bytes
        12      4  partition
        16      8  epoch: Spark's batch id; 0 for a batch write
        24      8  attempt: Spark's task attempt id, never used twice within a run
        32     16  query: Spark's query id, the same after a restart; made up for a batch write
        48     16  run: Spark's run id, another after each restart
        64      8  messages of the part   (BEGIN: 0)
        72      8  payload bytes of them  (BEGIN: 0)
        80      4  CRC-32 of their payloads, one after another (BEGIN: 0)
        84      4  0
        88      -  the key, when the sink has a publication per key
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
#: Beside each marker; positive, so that signed and unsigned readers agree.
RESERVED_VALUE: Final = int.from_bytes(MAGIC, "little")
VERSION: Final = 1
MAX_KEY_BYTES: Final = 1024
_LAYOUT: Final = struct.Struct("<8sBBHIqq16s16sQQII")
HEAD_BYTES: Final = _LAYOUT.size


class MarkerError(PenstockError, ValueError):
    """Bytes that are no marker, or one of a later version; says which."""


class Kind(enum.IntEnum):
    BEGIN = 1
    COMMIT = 2


def _below(end: int) -> Callable[[Any, attrs.Attribute[int], int], Any]:
    """From 0 on."""
    return attrs.validators.and_(attrs.validators.ge(0), attrs.validators.lt(end))


@attrs.frozen(kw_only=True)
class Part:
    """Messages of one attempt of a task in one session: a part of an epoch."""

    query: UUID
    run: UUID
    epoch: int = attrs.field(validator=_below(2**63))
    partition: int = attrs.field(validator=_below(2**32))
    attempt: int = attrs.field(validator=_below(2**63))
    key: bytes = attrs.field(default=b"", validator=attrs.validators.max_len(MAX_KEY_BYTES))

    def __str__(self) -> str:
        key = f" key {self.key!r}" if self.key else ""
        return (
            f"query {self.query} epoch {self.epoch} partition {self.partition}{key} "
            f"attempt {self.attempt}"
        )


@attrs.frozen(kw_only=True)
class Content:
    """Statement of a COMMIT about the rows since its BEGIN."""

    messages: int = attrs.field(default=0, validator=_below(2**64))
    bytes: int = attrs.field(default=0, validator=_below(2**64))
    crc: int = attrs.field(default=0, validator=_below(2**32))


@attrs.frozen(kw_only=True)
class Marker:
    """BEGIN (its content is empty) or COMMIT."""

    kind: Kind
    part: Part
    content: Content = Content()


def encode(marker: Marker) -> bytes:
    """The marker as a message."""
    part, content = marker.part, marker.content
    head = _LAYOUT.pack(
        MAGIC, VERSION, marker.kind, len(part.key), part.partition, part.epoch, part.attempt,
        part.query.bytes, part.run.bytes, content.messages, content.bytes, content.crc, 0,
    )  # fmt: skip
    return head + part.key


def decode(message: bytes | memoryview) -> Marker:
    """The marker that a message is.

    :raises MarkerError: it is none.
    """
    length = len(message)
    if length < HEAD_BYTES:
        raise MarkerError(f"a marker has at least {HEAD_BYTES} bytes, not {length}")
    (
        magic, version, kind, key_bytes, partition, epoch, attempt, query, run, messages, size, crc,
        zero,
    ) = _LAYOUT.unpack_from(message)  # fmt: skip
    if magic != MAGIC:
        raise MarkerError(f"a marker begins with {MAGIC!r}, not {magic!r}")
    if version != VERSION:
        raise MarkerError(f"marker version {version}: this is penstock with version {VERSION}")
    if kind not in (Kind.BEGIN, Kind.COMMIT):
        raise MarkerError(f"marker kind {kind}: 1 (BEGIN) and 2 (COMMIT) are known")
    if length != HEAD_BYTES + key_bytes or key_bytes > MAX_KEY_BYTES:
        raise MarkerError(f"a key of {key_bytes} bytes in a marker of {length}")
    if epoch < 0 or attempt < 0 or zero != 0:
        raise MarkerError(f"epoch {epoch}, attempt {attempt}, spare {zero}: not what a sink writes")
    content = Content(messages=messages, bytes=size, crc=crc)
    if kind == Kind.BEGIN and content != Content():
        raise MarkerError(f"a BEGIN that counts {messages} messages")
    part = Part(
        query=UUID(bytes=query), run=UUID(bytes=run), epoch=epoch, partition=partition,
        attempt=attempt, key=bytes(message[HEAD_BYTES:]),
    )
    return Marker(kind=Kind(kind), part=part, content=content)
