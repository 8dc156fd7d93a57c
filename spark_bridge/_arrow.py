# SPDX-License-Identifier: Apache-2.0
"""Arrow batches as messages: the schema that precedes them, and the mark by which each batch says
which schema it has.

A batch alone does not say what its bytes mean: eight bytes may be a bigint or a double.  The sink
sends the schema as the first message of each part, so the messages of a part are an Arrow IPC
stream.  It marks each batch with a fingerprint of the schema in its reserved value.  A task that
reads from the middle of a part checks the fingerprint.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

_PREFIX: Final = int.from_bytes(b"PA", "big") << 48
_REST: Final = (1 << 48) - 1
_ZONE: Final = re.compile(r"tz=[^\],>]+")


def fingerprint(schema: Any) -> int:
    """The reserved value of a batch of this schema: positive, the same in each process.  Names and
    types count; nullability and the name of a time zone do not, since they change no value."""
    text = "\n".join(f"{field.name} {_ZONE.sub('tz', str(field.type))}" for field in schema)
    return _PREFIX | int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "big")


def is_fingerprint(reserved_value: int) -> bool:
    """Whether a reserved value is one that :func:`fingerprint` makes."""
    return reserved_value & ~_REST == _PREFIX
