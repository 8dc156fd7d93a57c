# SPDX-License-Identifier: Apache-2.0
"""The names in a folder at one moment.

``os.scandir`` and ``os.listdir`` ask the kernel for about 800 names at a time. When the last name
of one answer is deleted before the next question, tmpfs begins again with its newest names. A list
of a folder that changes can then have names twice, and names of files that were never there at the
same time. One system call sees a folder as it is: the kernel holds the folder's lock meanwhile."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

_BYTES = 1 << 20                            # about 25 000 names
_HEAD = struct.Struct("=QqHB")              # struct linux_dirent64: inode, offset, length, kind
_LONGEST = _HEAD.size + 256 + 8             # of an entry, with its padding


def names_at_once(folder: Path) -> set[str]:
    """What ``folder`` holds; OSError if it is too much for one system call, or cannot be read."""
    read = ctypes.CDLL(None, use_errno=True).getdents64
    read.restype = ctypes.c_ssize_t
    read.argtypes = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
    buffer = ctypes.create_string_buffer(_BYTES)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        length = read(fd, buffer, _BYTES)
        if length < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(fd)
    if length > _BYTES - _LONGEST:
        raise OSError(f"{folder} has more names than one system call returns")
    names = set()
    offset = 0
    while offset < length:
        *_, size, _ = _HEAD.unpack_from(buffer, offset)
        name = buffer[offset + _HEAD.size : offset + size].split(b"\0", 1)[0]
        names.add(os.fsdecode(name))
        offset += size
    return names - {".", ".."}
