# SPDX-License-Identifier: Apache-2.0
"""Arrow batches as messages. The sink sends the Arrow schema before the record batches; the message
of each batch carries a fingerprint of this schema. An Arrow record batch alone does not state the
types of its values: the same eight bytes can be a bigint or a double. The sink sends the schema as
the first message of each part. Therefore, the messages of a part (the rows of one Spark task)
together are an Arrow IPC stream. The sink writes the fingerprint (a hash of the schema) into the
reserved value of each batch's message. A task that reads from the middle of a part gets no schema
message. Such a task compares the fingerprint of each batch with the fingerprint of the schema that
the query declares.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

import pyarrow as pa

_PREFIX: Final = int.from_bytes(b"PA", "big") << 48
_REST: Final = (1 << 48) - 1
_ZONE: Final = re.compile(r"tz=[^\],>]+")


def fingerprint(schema: Any) -> int:
    """Return the reserved value for batches with this schema. The value is a positive number, and
    is the same in each process. The fingerprint depends on the names and types of the columns. The
    fingerprint depends neither on names of time zones nor on nullability, also not of elements and
    fields within a column. Neither changes the bytes of the data.
    """
    text = "\n".join(f"{field.name} {_shape(field.type)}" for field in schema)
    return _PREFIX | int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "big")


def _shape(kind: Any) -> str:
    return _ZONE.sub("tz", str(kind)).replace(" not null", "")


def is_alike(mine: Any, theirs: Any) -> bool:
    """Return whether two Arrow types store their values alike: they differ at most in nullability
    and in the names of list elements."""
    if mine == theirs:
        return True
    if mine.id != theirs.id or mine.num_fields != theirs.num_fields or mine.num_fields == 0:
        return False
    fields = [(mine.field(n), theirs.field(n)) for n in range(mine.num_fields)]
    if pa.types.is_struct(mine) and any(one.name != other.name for one, other in fields):
        return False
    return all(is_alike(one.type, other.type) for one, other in fields)


def is_fingerprint(reserved_value: int) -> bool:
    """Return whether a reserved value can be a result of :func:`fingerprint`."""
    return reserved_value & ~_REST == _PREFIX
