# SPDX-License-Identifier: Apache-2.0
"""Record a relay's progress in two files, so that the next process of the relay can continue where
this process stopped.

``DIR/relays/NAME.json`` contains the daemon's ids for the relay's client, subscription and
publications. At each change of an id, the relay replaces the file ``NAME.json``.
``DIR/relays/NAME.cells`` is a memory-mapped file with a cell (a fixed-size record) for each relayed
session. The relay changes a cell by single stores in a fixed order. The next process can therefore
read the cell even if the relay was killed between two stores. The process of a relay holds the lock
of ``NAME.cells`` until the process ends. The relay's two files are in shared memory like the logs,
so they disappear together with the logs.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import secrets
import struct
from pathlib import Path
from typing import Any, Final

import attrs

from penstock.core.errors import ConfigurationError

FOLDER: Final = "relays"
CELLS: Final = 256
"""Most streams that one relay has at a time."""
_FORMAT: Final = 2
_CELL_BYTES: Final = 128
_NUMBER: Final = struct.Struct("=q")
_POINT: Final = struct.Struct("=qqqq")
_POINTS_AT: Final = 16
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


@attrs.frozen
class Point:
    """The position of one message in the source session, and its position in the target session."""

    source: int
    """Position in the source: the next message there ..."""
    target: int
    """... is the first one behind this position of the target, ..."""
    ordinal: int
    """which has so many messages before. ..."""
    source_ordinal: int
    """So many messages are before the position in the source; -1: unknown."""


class Cell:
    """Record of the progress of one relayed session; only the relay's thread writes it."""

    def __init__(self, memory: mmap.mmap, index: int) -> None:
        self._memory = memory
        self._at = index * _CELL_BYTES
        self.index = index

    def clear(self) -> None:
        """Begin with a new stream."""
        self._memory[self._at : self._at + _CELL_BYTES] = bytes(_CELL_BYTES)

    @property
    def intent(self) -> int:
        """The end of the messages that the relay has published or is publishing now, as a position
        in the source session. If the relay's process died, messages below ``intent`` may already be
        in the target's log."""
        return int(_NUMBER.unpack_from(self._memory, self._at + 8)[0])

    def intend(self, position: int) -> None:
        _NUMBER.pack_into(self._memory, self._at + 8, position)

    def read(self) -> Point:
        which = _NUMBER.unpack_from(self._memory, self._at)[0] & 1
        at = self._at + _POINTS_AT + which * _POINT.size
        return Point(*_POINT.unpack_from(self._memory, at))

    def write(self, source: int, target: int, ordinal: int, source_ordinal: int) -> None:
        """Record the progress. If the process is killed while it writes a record, the previous
        record stays valid."""
        which = 1 - (_NUMBER.unpack_from(self._memory, self._at)[0] & 1)
        at = self._at + _POINTS_AT + which * _POINT.size
        _POINT.pack_into(self._memory, at, source, target, ordinal, source_ordinal)
        _NUMBER.pack_into(self._memory, self._at, which)


class RelayFiles:
    """The two files of a relay. The object holds a file lock, so that no second process can run the
    same relay."""

    def __init__(self, directory: Path, name: str) -> None:
        """
        :raises ConfigurationError: another process runs the relay.
        :raises OSError: this user may not access the daemon's directory.
        """
        folder = directory / FOLDER
        folder.mkdir(exist_ok=True)
        self._path = folder / f"{name}.json"
        fd = os.open(folder / f"{name}.cells", _CREATE, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, CELLS * _CELL_BYTES)
            self._memory = mmap.mmap(fd, CELLS * _CELL_BYTES)
        except BlockingIOError:
            os.close(fd)
            raise ConfigurationError(
                f"another process runs the relay {name!r} in {directory}: end it, or give this "
                "one another name"
            ) from None
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        self.plain: dict[str, Any] = self._read()

    def _read(self) -> dict[str, Any]:
        """What the last process noted; that of a new relay if there is none, or it is damaged."""
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
            plain = json.loads(self._path.read_bytes())
            if plain["format"] == _FORMAT and isinstance(plain["legs"], dict):
                return dict(plain)
        return {"format": _FORMAT, "relay_id": secrets.randbits(63) | 1, "client": {}, "legs": {}}

    def write(self) -> None:
        """Replace the file of registrations. If the process dies while it replaces the file, the
        file keeps its old content."""
        new = self._path.with_suffix(".new")
        with contextlib.suppress(FileNotFoundError):
            new.unlink()
        fd = os.open(new, _CREATE | os.O_EXCL, 0o600)       # it has the client's token
        with os.fdopen(fd, "wb") as file:
            file.write(json.dumps(self.plain).encode())
        os.replace(new, self._path)

    def cell(self, index: int) -> Cell:
        return Cell(self._memory, index)

    def free_cell(self) -> Cell | None:
        """Return a cell (record) that no relayed session uses, or None if all cells are in use."""
        used = {leg["cell"] for leg in self.plain["legs"].values()}
        free = next((index for index in range(CELLS) if index not in used), None)
        if free is None:
            return None
        cell = self.cell(free)
        cell.clear()
        return cell

    def close(self, *, remove: bool) -> None:
        """Release the lock. With ``remove``, also remove both files of the relay, because the relay
        has ended."""
        if remove:
            for path in (self._path, self._path.with_suffix(".cells")):
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
        self._memory.close()
        os.close(self._fd)
