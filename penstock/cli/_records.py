# SPDX-License-Identifier: Apache-2.0
"""Read and write messages in files: as lines, or as records that begin with their length (u32,
little endian)."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

from penstock.core.errors import PenstockError

LENGTH: Final = struct.Struct("<I")
_READ_BYTES: Final = 256 * 1024
#: Longest message: an eighth of the largest term, at most 16 MiB.
_RECORD_BYTES_MAX: Final = 16 * 1024 * 1024


class Digest:
    """Computes the SHA-256 hash of a sequence of messages. For each message, it hashes first the
    length and then the bytes, so that message boundaries count too."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, message: bytes | memoryview) -> None:
        self._hash.update(LENGTH.pack(len(message)))
        self._hash.update(message)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def read_lines(source: BinaryIO) -> Iterator[list[bytes]]:
    """Read lines from a file or pipe, and yield lists of lines without line ends. For each read of
    the file, the function yields one list: the lines whose ends are in the data of this read. The
    last line need not have a line end.
    """
    rest = b""
    while chunk := _read_some(source):
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        if lines:
            yield lines
    if rest:
        yield [rest]


def read_records(source: BinaryIO) -> Iterator[list[bytes]]:
    """Read length-prefixed records from a file or pipe, and yield lists of records. For each read
    of the file, the function yields one list: the records whose ends are in the data of this read.

    :raises PenstockError: a record is cut off, or longer than the longest message.
    """
    buffer = bytearray()
    consumed = 0
    while chunk := _read_some(source):
        buffer += chunk
        group, used = _take_records(buffer, consumed)
        del buffer[:used]
        consumed += used
        if group:
            yield group
    if buffer:
        raise PenstockError(
            f"the input ends inside a record: only {len(buffer)} bytes follow the start of the "
            f"record at byte {consumed}"
        )


def _take_records(buffer: bytearray, consumed: int) -> tuple[list[bytes], int]:
    group: list[bytes] = []
    at = 0
    while len(buffer) - at >= LENGTH.size:
        (length,) = LENGTH.unpack_from(buffer, at)
        if length > _RECORD_BYTES_MAX:
            raise PenstockError(
                f"the record at byte {consumed + at} states a length of {length} bytes, but a "
                f"message has at most {_RECORD_BYTES_MAX} bytes: is this input length-prefixed?"
            )
        end = at + LENGTH.size + length
        if end > len(buffer):
            break
        group.append(bytes(buffer[at + LENGTH.size : end]))
        at = end
    return group, at


def _read_some(source: BinaryIO) -> bytes:
    read1 = getattr(source, "read1", None)
    data: bytes = read1(_READ_BYTES) if read1 is not None else source.read(_READ_BYTES)
    return data


def generated(count: int, size: int, *, group: int = 256) -> Iterator[list[bytes]]:
    """Yield ``count`` messages of ``size`` bytes: the number of the message, then a fixed pattern.

    The content of a message depends only on the number and the size of the message, so sender and
    receiver can both compute the content.
    """
    pattern = bytes(i * 31 % 251 for i in range(256)) * (size // 256 + 1)
    for first in range(0, count, group):
        yield [
            (number.to_bytes(8, "little") + pattern)[:size]
            for number in range(first, min(first + group, count))
        ]


def printable(message: bytes | memoryview) -> str:
    """Return text that is safe for a terminal: escape the unprintable characters."""
    text = str(message, "utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode()
        for char in text
    )


def terminal_writer(target: BinaryIO, encoding: str) -> Callable[[bytes | memoryview], None]:
    """Return a function that writes one message as a readable line."""

    def write_text(message: bytes | memoryview) -> None:
        target.write(printable(message).encode(encoding, "backslashreplace"))
        target.write(b"\n")

    return write_text


def writer(target: BinaryIO, *, length_prefixed: bool) -> Callable[[bytes | memoryview], None]:
    """Return a function that writes one message, either as a line or as a record with its
    length."""
    write = target.write
    if length_prefixed:

        def write_record(message: bytes | memoryview) -> None:
            write(LENGTH.pack(len(message)))
            write(message)

        return write_record

    def write_line(message: bytes | memoryview) -> None:
        write(message)
        write(b"\n")

    return write_line
