# SPDX-License-Identifier: Apache-2.0
"""Write the trace of ``penstock daemon --trace FILE``: a file with a JSON object in each line, one
for each event.

A line has the form ``{"t": ns, "host": name, "event": name, "fields": {...}}``. Each line is an
event of the event feed, or a ``sample`` of all streams. The daemon adds a sample (the present state
of all streams) at constant intervals (:mod:`penstock.daemon.observe.samples`).

The simulator writes traces in the same format. The daemon's other threads put entries into a
bounded queue. The trace's thread formats and writes the entries, so a slow or full disk delays no
other thread. If the queue is full, new entries are dropped. A later line of the file, with the
event ``trace_dropped``, states how many were dropped.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import ConfigurationError

_LOG = logging.getLogger("penstock.daemon")
_BEGINNING: Final = b'{"t": '
_TORN_BYTES: Final = 1 << 20            # longest incomplete line of a killed daemon
_CLOSE_S: Final = 2.0

DROPPED: Final = "trace_dropped"
"""The event that stands for what is missing: ``{"events": how many}``."""
_QUEUE: Final = 65_536

Entry = tuple[int, str, Mapping[str, Any]]


def line(at_ns: int, host: str | None, name: str, fields: Mapping[str, Any]) -> str:
    """Return one event as text, without a line end."""
    event = {"t": at_ns, "host": host, "event": name, "fields": fields}
    return json.dumps(event, default=str, skipkeys=True)


class TraceFile:
    """Opened by :meth:`open`. The field ``t`` of a line is the time of its event: the wall-clock
    time at which the trace was opened, plus the monotonic time since then. The field ``t`` never
    decreases. The times in traces of several hosts agree as precisely as the clocks of the hosts
    agree."""

    def __init__(self, path: Path, fd: int, *, host: str, file_bytes: int, queue: int) -> None:
        self._path = path
        self._fd = fd
        self._host = host
        self._limit_bytes = file_bytes
        self._limit = queue
        self._bytes = os.fstat(fd).st_size
        self._epoch_ns = time.time_ns() - time.monotonic_ns()
        self._waiting: deque[Entry] = deque()
        self._weight = 0                # number of waiting entries, by streams and events
        self._missing = 0               # dropped entries that are not reported yet
        self._complained = False
        self._closing = False
        self._events = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="penstock-trace", daemon=True)
        self.dropped = 0
        self._thread.start()

    @classmethod
    def open(
        cls, name: str, *, directory: Path, host: str, file_bytes: int, queue: int = _QUEUE
    ) -> TraceFile:
        """Open the trace file. If the trace file exists, the daemon appends to the file.

        :raises ConfigurationError: the file cannot be written, is no trace, or lies in the daemon's
            directory.
        """
        path = Path(name).absolute()
        if path.resolve().is_relative_to(directory.resolve()):
            raise ConfigurationError(
                f"trace.file: {path} lies in the daemon's directory, which the daemon removes: "
                "choose a file elsewhere"
            )
        try:
            fd = _open(path)
        except OSError as error:
            raise ConfigurationError(
                f"trace.file: {path} cannot be written: {error.strerror}"
            ) from error
        return cls(path, fd, host=host, file_bytes=file_bytes, queue=queue)

    # ---- who tells -------------------------------------------------------------------------------

    def put(self, name: str, fields: Mapping[str, Any], *, weight: int = 1) -> None:
        """Put an event with the present time into the queue. Another thread writes the event later,
        so the caller must not change ``fields`` after the call. Never waits for the disk."""
        at_ns = time.monotonic_ns() + self._epoch_ns
        with self._events:
            if self._closing:
                return
            if self._weight + weight > self._limit:
                self._missing += 1
                self.dropped += 1
                return
            self._report_missing(at_ns)
            self._waiting.append((at_ns, name, fields))
            self._weight += weight
            self._events.notify()

    def _report_missing(self, at_ns: int) -> None:
        """Queue the number of dropped entries. Call it with the lock held."""
        if self._missing:
            self._waiting.append((at_ns, DROPPED, {"events": self._missing}))
            self._missing = 0

    def close(self) -> None:
        """Close the trace. Wait at most 2 s until the entries that are still in the queue have been
        written."""
        with self._events:
            self._closing = True
            self._report_missing(time.monotonic_ns() + self._epoch_ns)
            self._events.notify()
        self._thread.join(_CLOSE_S)
        if self._thread.is_alive():
            _LOG.error("%s: the disk is too slow: the end of the trace is missing", self._path)

    # ---- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._events:
                self._events.wait_for(lambda: self._waiting or self._closing)
                batch, self._waiting, self._weight = self._waiting, deque(), 0
                closing = self._closing
            if batch:
                self._write(batch)
            elif closing:
                os.close(self._fd)
                return

    def _write(self, batch: deque[Entry]) -> None:
        lines = [f"{line(at_ns, self._host, name, fields)}\n" for at_ns, name, fields in batch]
        data = "".join(lines).encode()
        try:
            if self._bytes and self._bytes + len(data) > self._limit_bytes > 0:
                self._begin_anew()
            written = 0
            while written < len(data):
                written += os.write(self._fd, data[written:])
            self._bytes += len(data)
        except (OSError, ConfigurationError) as error:
            self._on_failure(str(error), batch)

    def _begin_anew(self) -> None:
        """Rename the full file to FILE.1, which replaces an older one, and begin a new file."""
        os.replace(self._path, f"{self._path}.1")
        fd = _open(self._path)
        os.close(self._fd)
        self._fd, self._bytes = fd, 0

    def _on_failure(self, why: str, batch: deque[Entry]) -> None:
        """Count the failed batch as dropped, with the dropped entries that it would have
        reported."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self._bytes)         # no torn line
        untold = sum(int(fields["events"]) for _, name, fields in batch if name == DROPPED)
        lost = sum(1 for _, name, _ in batch if name != DROPPED)
        with self._events:
            self._missing += untold + lost
            self.dropped += lost
        if not self._complained:
            self._complained = True
            _LOG.error("%s: %s: records are missing from the trace", self._path, why)


def _open(path: Path) -> int:
    """Open the file for appending, with an exclusive lock."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags, 0o640)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ConfigurationError(f"trace.file: {path} is not a regular file: choose another")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(
                f"trace.file: {path} is written by another daemon: choose another file"
            ) from None
        _mend(fd, path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _mend(fd: int, path: Path) -> None:
    """Remove an incomplete last line; do not touch a file that is no trace."""
    size = os.fstat(fd).st_size
    beginning = os.pread(fd, len(_BEGINNING), 0)
    if not _BEGINNING.startswith(beginning):
        raise ConfigurationError(
            f"trace.file: {path} exists and is not a trace: choose another file"
        )
    tail_at = max(0, size - _TORN_BYTES)
    tail = os.pread(fd, size - tail_at, tail_at)
    os.ftruncate(fd, tail_at + tail.rfind(b"\n") + 1)
