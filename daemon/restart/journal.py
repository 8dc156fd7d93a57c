# SPDX-License-Identifier: Apache-2.0
"""The file ``DIR/registry.journal``, in which the conductor records its objects for the next
daemon.

The journal begins with a line that states its format. After the first line, the journal contains
records in the order of the changes. If several records have the same kind and key, only the last
one is valid. A record without fields states that the object has been removed. A record is

    length u32 | crc of length u32 | crc of body u32 | body (msgpack: [kind, key, fields])

all little-endian. Each record is one write. If a daemon is killed while it writes, at most the last
record of the file is incomplete. Readers ignore this incomplete record: the daemon died before it
notified a client of the recorded object, so no client knows the object. If a journal has an error
other than an incomplete last record, the journal is damaged, and the next daemon refuses to adopt
it. The journal is in shared memory like the rest of the directory, so the daemon never syncs it to
a disk.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import msgpack

from penstock.config import uri
from penstock.core import driver_types
from penstock.core.errors import PenstockError
from penstock.daemon.conductor.state import model

NAME: Final = "registry.journal"
FORMAT: Final = 17                      # raise it when the content of records changes
_HEAD: Final = b"PENSTOCK-REGISTRY %d\n" % FORMAT
_ANY_HEAD: Final = re.compile(rb"PENSTOCK-REGISTRY (\d{1,9})\n")
_HEAD_BYTES: Final = 64
_FRAME: Final = struct.Struct("<III")
_LENGTH: Final = struct.Struct("<I")
_MAX_BODY: Final = 16 * 1024 * 1024
_COMPACT_BYTES: Final = 4 * 1024 * 1024
_TUPLE, _OBJECT = 1, 2

Key = tuple[str, tuple[int, ...]]
Fields = Mapping[str, Any]

_CLASSES: Final[dict[str, type[Any]]] = {
    "Address": driver_types.Address,
    "Destination": model.Destination,
    "ImageParams": driver_types.ImageParams,
    "LogFile": model.LogFile,
    "Name": uri.Address,
    "PublicationParams": driver_types.PublicationParams,
    "RecvDestinationParams": driver_types.RecvDestinationParams,
    "RecvEndpointParams": driver_types.RecvEndpointParams,
    "SendEndpointParams": driver_types.SendEndpointParams,
    "SocketParams": driver_types.SocketParams,
}
_NAMES: Final[dict[type[Any], str]] = {cls: name for name, cls in _CLASSES.items()}


class JournalDamaged(PenstockError):
    """Raised for a journal that has another format or is damaged; the text of the exception states
    the error."""


# ---- values --------------------------------------------------------------------------------------


def _pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, default=_extended, strict_types=True)
    return packed


def _extended(value: Any) -> Any:
    if isinstance(value, int):
        return int(value)               # an enumeration
    if isinstance(value, tuple):
        return msgpack.ExtType(_TUPLE, _pack(list(value)))
    name = _NAMES.get(type(value))
    if name is None:
        raise TypeError(f"the registry holds no {type(value).__name__}")
    fields = {field.name: getattr(value, field.name) for field in attrs.fields(type(value))}
    return msgpack.ExtType(_OBJECT, _pack([name, fields]))


def _unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, ext_hook=_restored, strict_map_key=False)


def _restored(code: int, data: bytes) -> Any:
    if code == _TUPLE:
        return tuple(_unpack(data))
    if code != _OBJECT:
        raise ValueError(f"extension {code}")
    name, fields = _unpack(data)
    return _CLASSES[name](**fields)


def encode(kind: str, key: tuple[int, ...], fields: Fields | None) -> bytes:
    """Return one encoded record. If ``fields`` is None, the record states that the object with this
    kind and key has been removed."""
    body = _pack([kind, list(key), None if fields is None else dict(fields)])
    length = _LENGTH.pack(len(body))
    return _FRAME.pack(len(body), zlib.crc32(length), zlib.crc32(body)) + body


# ---- reading -------------------------------------------------------------------------------------


def decode(data: bytes) -> dict[Key, dict[str, Any]]:
    """Return the last record of each object that has not been removed. The objects are in the order
    of their first records.

    :raises JournalDamaged: the file has another format, or its content was changed.
    """
    if not data.startswith(_HEAD):
        if _HEAD.startswith(data):
            return {}                   # its writer died while it wrote the first line
        raise JournalDamaged(f"{NAME} does not have format {FORMAT}")
    found: dict[Key, dict[str, Any]] = {}
    at = len(_HEAD)
    while len(data) - at >= _FRAME.size:
        length, length_sum, body_sum = _FRAME.unpack_from(data, at)
        if zlib.crc32(data[at : at + _LENGTH.size]) != length_sum or length > _MAX_BODY:
            raise JournalDamaged(f"{NAME}: byte {at}: no record begins here")
        at += _FRAME.size
        if len(data) - at < length:
            break                       # broke off
        body = data[at : at + length]
        if zlib.crc32(body) != body_sum:
            raise JournalDamaged(f"{NAME}: byte {at}: the record was changed")
        _apply(found, body, at)
        at += length
    return found


def _apply(found: dict[Key, dict[str, Any]], body: bytes, at: int) -> None:
    try:
        kind, numbers, fields = _unpack(body)
        key = (str(kind), tuple(int(number) for number in numbers))
        if fields is None:
            found.pop(key, None)
        else:
            found[key] = dict(fields)
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise JournalDamaged(f"{NAME}: byte {at}: not understood: {why}") from None


def format_of(directory: Path) -> int | None:
    """Return the format number of a dead daemon's journal. Return None if there is no journal, or
    if its first line states no format."""
    try:
        with (directory / NAME).open("rb") as file:
            line = file.read(_HEAD_BYTES)
    except OSError:
        return None
    match = _ANY_HEAD.match(line)
    return None if match is None else int(match[1])


def read(directory: Path) -> dict[Key, dict[str, Any]] | None:
    """Return the records of a dead daemon's objects, or None if it left no journal.

    :raises JournalDamaged: the file has another format, or its content was changed.
    """
    try:
        return decode((directory / NAME).read_bytes())
    except FileNotFoundError:
        return None


# ---- writing -------------------------------------------------------------------------------------


class Journal:
    """The daemon's open journal, which only one thread may use."""

    def __init__(
        self, directory: Path, *, file_mode: int, on_failure: Callable[[str], None]
    ) -> None:
        """Begin an empty journal in memory. The old daemon's journal file stays unchanged until
        :meth:`install` replaces it."""
        self._path = directory / NAME
        self._mode = file_mode & 0o700 | 0o600      # it contains tokens
        self._on_failure = on_failure
        self._state: dict[Key, dict[str, Any]] = {}
        self._fd = -1
        self._bytes = 0
        self._compact_at = _COMPACT_BYTES
        self._broken = False

    def install(self) -> None:
        """Write the records of all present objects to a new file, which atomically replaces the old
        journal."""
        making = self._path.with_suffix(".new")
        blob = _HEAD + b"".join(
            encode(kind, key, fields) for (kind, key), fields in self._state.items()
        )
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(making, flags, self._mode)
        try:
            _write_all(fd, blob)
            os.rename(making, self._path)
        except OSError:
            os.close(fd)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._bytes = fd, len(blob)
        self._compact_at = 2 * len(blob) + _COMPACT_BYTES

    def record(self, kind: str, key: tuple[int, ...], fields: Fields | None) -> None:
        """Record a change. If the record cannot be written (for example because the file system is
        full), remove the journal, which would be outdated. Without a journal, no daemon can adopt
        the streams."""
        if fields is None:
            self._state.pop((kind, key), None)
        else:
            self._state[kind, key] = dict(fields)
        if self._fd < 0 or self._broken:
            return
        try:
            if self._bytes > self._compact_at:
                self.install()
            else:
                data = encode(kind, key, fields)
                _write_all(self._fd, data)
                self._bytes += len(data)
        except (OSError, TypeError) as error:
            self._broken = True
            self._path.unlink(missing_ok=True)
            self._on_failure(
                f"{self._path}: {error}: streams would not survive the daemon's death"
            )

    def settle(self) -> bool:
        """Return whether the journal has a record of every object. If an earlier record could not
        be written, first try to write the whole journal again."""
        if self._broken:
            try:
                self.install()
            except (OSError, TypeError):
                return False
            self._broken = False
        return True

    def load(self, records: Iterable[tuple[Key, Fields]]) -> None:
        """Copy the records of the old daemon into this journal."""
        self._state.update((key, dict(fields)) for key, fields in records)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
