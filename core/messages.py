# SPDX-License-Identifier: Apache-2.0
"""The messages that one poll returns: an array of ``ps_message_t``, and its layout for Python."""

from __future__ import annotations

import struct
from typing import Any, Final

from penstock.core._lib import CORE
from penstock.core.library import Library

#: One ``ps_message_t``: data address, length, log_offset, start_position, position, reserved_value,
#: session_id, stream_id, term_id, term_offset, image_index, flags, assembled.
MESSAGE: Final = struct.Struct("@PqqqqqiiiiiBB2x")
#: The same as NumPy structured dtype description.
MESSAGE_FIELDS: Final = (
    ("data", "u8"),
    ("length", "i8"),
    ("log_offset", "i8"),
    ("start_position", "i8"),
    ("position", "i8"),
    ("reserved_value", "i8"),
    ("session_id", "i4"),
    ("stream_id", "i4"),
    ("term_id", "i4"),
    ("term_offset", "i4"),
    ("image_index", "i4"),
    ("flags", "u1"),
    ("assembled", "u1"),
    ("_pad", "u2"),
)
assert MESSAGE.size == CORE.ffi.sizeof("ps_message_t")


class Messages:
    """Array for the results of one poll.

    Python can use the memory of the array in three forms: ``native`` for ``sub_poll`` and
    ``img_poll``, ``raw`` for ``MESSAGE.iter_unpack`` and NumPy, and ``address`` for the fast path.
    """

    __slots__ = ("_library", "address", "capacity", "native", "raw")

    def __init__(self, capacity: int, library: Library = CORE) -> None:
        ffi = library.ffi
        self._library = library
        self.capacity = capacity
        self.native: Any = ffi.new("ps_message_t[]", capacity)
        self.raw = memoryview(ffi.buffer(self.native))
        self.address = int(ffi.cast("uintptr_t", self.native))

    # The next three take ``count`` messages of the latest poll, while it is the latest.  Addresses
    # are of memory with room for them.

    def payload_bytes(self, count: int) -> int:
        """Sum of the lengths."""
        return int(self._library.lib.ps_messages_bytes(self.native, count))

    def gather(self, count: int, offsets: int, data: int) -> None:
        """Copy the payloads into ``data``, and their start and end offsets (count + 1 int64) into
        ``offsets``."""
        ffi = self._library.ffi
        self._library.lib.ps_messages_gather(
            self.native, count, ffi.cast("int64_t *", offsets), ffi.cast("uint8_t *", data)
        )

    def columns(self, count: int, positions: int, session_ids: int, reserved_values: int) -> None:
        """Copy the position (int64), the session id (int32) and the reserved value (int64) of each
        message."""
        ffi = self._library.ffi
        self._library.lib.ps_messages_columns(
            self.native, count, ffi.cast("int64_t *", positions),
            ffi.cast("int32_t *", session_ids), ffi.cast("int64_t *", reserved_values),
        )


def copy_bytes(address: int, length: int) -> bytes:
    """Return a copy of a message that a poll assembled from fragments. ``address`` is the message's
    ``data`` address in the poll's result."""
    copied: bytes = CORE.ffi.buffer(CORE.ffi.cast("uint8_t *", address), length)[:]
    return copied
