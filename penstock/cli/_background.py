# SPDX-License-Identifier: Apache-2.0
"""Find the process, the log file, and the start record of a daemon in the background.

``penstock up`` writes a record of the daemon that it starts. ``penstock down`` ends a daemon only
if this record states the process of the daemon. The start record and the log file of a daemon are
in ``$XDG_STATE_HOME/penstock``, so that both outlive the daemon's directory.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from penstock.client._directory import not_allowed
from penstock.core.errors import ConfigurationError
from penstock.daemon.processes import process_started

_CREDENTIALS: Final = struct.Struct("3i")       # pid, uid, gid
_PROBE_S: Final = 1.0
_LOG_BYTES: Final = 1 << 20


class Record(NamedTuple):
    """A daemon that ``penstock up`` started."""

    pid: int
    started: int
    """Start of the process in kernel ticks: a later process may have the same number."""

    @property
    def lives(self) -> bool:
        return self.started > 0 and process_started(self.pid) == self.started


class Files(NamedTuple):
    """Paths of two files of a background daemon: its log, and the record of its start."""

    log: Path
    record: Path

    @classmethod
    def of(cls, directory: Path, environ: Mapping[str, str] | None = None) -> Files:
        """Return the paths of the log and the record; create their folder.

        :raises ConfigurationError: the folder cannot be created.
        """
        env = os.environ if environ is None else environ
        home = env.get("XDG_STATE_HOME", "")
        # The XDG specification requires that relative paths are ignored.
        state = Path(home) if home.startswith("/") else Path.home() / ".local" / "state"
        folder = state / "penstock"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"{folder}: {error.strerror}: the daemon's log would be in this folder; choose "
                "another folder with $XDG_STATE_HOME"
            ) from error
        name = str(directory).strip("/").replace("/", "-")
        return cls(folder / f"{name}.log", folder / f"{name}.json")

    def read(self) -> Record | None:
        """Return the record of the daemon's start, or None if there is no valid record."""
        try:
            found = json.loads(self.record.read_text(encoding="utf-8"))
            return Record(pid=int(found["pid"]), started=int(found["started"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, record: Record) -> None:
        """Replace the record."""
        new = self.record.with_suffix(".new")
        new.write_text(json.dumps(record._asdict()) + "\n", encoding="utf-8")
        new.replace(self.record)

    def forget(self) -> None:
        """Remove the record."""
        self.record.unlink(missing_ok=True)

    def open_log(self) -> int:
        """Open the log file for appending and return its descriptor. If the log file is large,
        rename it and begin a new file."""
        with contextlib.suppress(FileNotFoundError):
            if self.log.stat().st_size > _LOG_BYTES:
                self.log.replace(self.log.with_suffix(".log.old"))
        return os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def answering(directory: Path) -> int | None:
    """Return the process id of the daemon that serves the directory, or None if no daemon serves
    it. If the process id is not visible here, because the daemon is in another PID namespace,
    return 0.

    :raises ChannelRefused: this user may not access the daemon; code ``permission``.
    """
    path = directory / "control.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(os.fspath(path))
        except PermissionError:
            raise not_allowed(path) from None
        except TimeoutError:
            return owner(directory) or 0        # the daemon is there, and busy
        except OSError as error:
            return (owner(directory) or 0) if error.errno == errno.EAGAIN else None
        raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[0])


def owner(directory: Path) -> int | None:
    """Return the process id in the directory's lock file, or None if no such process is alive. The
    daemon with this process id may still be starting, so it need not answer yet.
    """
    try:
        lines = (directory / "daemon.lock").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    number = lines.splitlines()[1:2]
    if not number or not number[0].isdigit():
        return None
    return int(number[0]) if process_started(int(number[0])) else None
