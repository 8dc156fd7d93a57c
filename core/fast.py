# SPDX-License-Identifier: Apache-2.0
"""The door to ``penstock._fast``, the per-message part of the client in C.

Importing this module fails with ImportError where that extension is missing or of another build
than the core; the client then does the same work through cffi.
"""

from __future__ import annotations

from penstock import _fast
from penstock._fast import Header, Log, Offerer, Park, Poller, Waiter
from penstock.core._lib import ffi, lib
from penstock.core.client import ImageHandle, img_mapped

_fast.connect(int(ffi.cast("uintptr_t", lib.ps_fast_table())))

__all__ = ["Header", "Log", "Offerer", "Park", "Poller", "Waiter", "image_log"]


def image_log(image: ImageHandle) -> Log:
    """The mapped log of an image as a buffer; it stays mapped for as long as a view exists."""
    address, length, owner = img_mapped(image)
    return Log(address, length, owner)
