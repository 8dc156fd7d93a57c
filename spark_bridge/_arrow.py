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

_PREFIX: Final = int.from_bytes(b"PA", "big") << 48
_REST: Final = (1 << 48) - 1
_ZONE: Final = re.compile(r"tz=[^\],>]+")


def fingerprint(schema: Any) -> int:
    """Return the reserved value for batches with this schema. The value is a positive number, and
    is the same in each process. The fingerprint depends on the names and types of the columns. The
    fingerprint does not depend on the nullability of columns or on names of time zones, because
    neither changes the bytes of the data.
    """
    text = "\n".join(f"{field.name} {_ZONE.sub('tz', str(field.type))}" for field in schema)
    return _PREFIX | int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "big")


def is_fingerprint(reserved_value: int) -> bool:
    """Return whether a reserved value can be a result of :func:`fingerprint`."""
    return reserved_value & ~_REST == _PREFIX
