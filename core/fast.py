# SPDX-License-Identifier: Apache-2.0
"""Import ``penstock._fast``, the C extension with the client code that runs for each message.

If this extension is missing, or belongs to another build of the core, importing this module raises
ImportError, and the client uses cffi.
"""

from __future__ import annotations

from penstock import _fast
from penstock._fast import Guard, Header, Log, Offerer, Park, Poller, Waiter
from penstock.core._lib import ffi, lib
from penstock.core.client import ImageHandle, Messages, img_mapped

_fast.connect(int(ffi.cast("uintptr_t", lib.ps_fast_table())))

__all__ = [
    "FastMessages", "Guard", "Header", "Log", "Offerer", "Park", "Poller", "Waiter", "image_log",
    "join",
]

#: ``join(items)``: (data, int64 offsets, longest) of a list or tuple of bytes objects; None when it
#: holds anything else.
join = _fast.join


class FastMessages(Messages):
    """An array of messages; its methods do not release the interpreter's lock."""

    __slots__ = ()

    def payload_bytes(self, count: int) -> int:
        return _fast.payload_bytes(self.address, count)

    def gather(self, count: int, offsets: int, data: int) -> None:
        _fast.gather(self.address, count, offsets, data)

    def columns(self, count: int, positions: int, session_ids: int, reserved_values: int) -> None:
        _fast.columns(self.address, count, positions, session_ids, reserved_values)


def image_log(image: ImageHandle) -> Log:
    """The mapped log of an image as a buffer. The log stays mapped as long as a view of it
    exists."""
    address, length, owner = img_mapped(image)
    return Log(address, length, owner)
