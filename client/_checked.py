# SPDX-License-Identifier: Apache-2.0
"""Support ``poll(handler, checked=True)``, which finds code that uses a message after its handler
returned."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections import deque
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Final

from penstock.client._message import end_view

if TYPE_CHECKING:
    from penstock.client._message import Header
    from penstock.client._reader import Handler

_PROT_NONE: Final = 0
#: Number of unreadable copies that stay mapped, so that a late access hits one.
_KEPT: Final = 1024
_graveyard: deque[tuple[int, int, Any]] = deque()
_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def checked_handler(handler: Handler) -> Handler:
    """Return a handler that calls ``handler`` with a copy of the message. When ``handler`` returns,
    the memory pages of the copy become unreadable, so a later access to the message ends the
    process.

    The copies of the last 1024 messages stay mapped as unreadable memory; older copies are
    unmapped.
    """

    def call(message: memoryview, header: Header) -> None:
        pages = mmap.mmap(-1, max(1, len(message)))
        pages[: len(message)] = message
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        references = getrefcount(pages)
        view = memoryview(pages)[: len(message)].toreadonly()
        try:
            handler(view, header)
            end_view(view, pages, references, header)
        finally:
            _bury(pages, address)

    return call


def _bury(pages: mmap.mmap, address: int) -> None:
    length = len(pages)
    if _libc.mprotect(address, -(-length // mmap.PAGESIZE) * mmap.PAGESIZE, _PROT_NONE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot protect the pages of a message: {os.strerror(code)}")
    _graveyard.append((address, length, pages))
    while len(_graveyard) > _KEPT:
        _graveyard.popleft()
