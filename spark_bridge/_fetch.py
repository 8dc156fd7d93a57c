# SPDX-License-Identifier: Apache-2.0
"""Read the frames of a range for a Spark task. The frames come from a log on the task's own host,
or from a daemon that has the range and sends it.

A worker process of Spark runs several tasks. When a task ends, its worker process keeps the mapped
logs and the connections for its next task. Creating mappings and connections again would be slow.
If a process maps a log again, the first access to each page causes a page fault. A new connection
with keys takes several round trips.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

from penstock.client import DaemonUnreachable, GroupControl, GroupError
from penstock.core import gather
from penstock.core.errors import PenstockError
from penstock.spark_bridge._options import Daemon, SourceOptions
from penstock.spark_bridge._planner import Holder, Range
from penstock.spark_bridge._subscription import control_of

_log = logging.getLogger(__name__)

_MOST_LOGS: Final = 64
_NOBODY_S: Final = 5.0           # time for which a host without a daemon is not tried again
_TIMEOUT_S: Final = 10.0
_SOCKET: Final = "groups.sock"   # in the directory of a running daemon


class RangeLost(PenstockError):
    """Raised if no daemon retains a range any more. ``lowest`` is the lowest retained position of
    the session; None if no daemon retains any data of the session."""

    def __init__(self, message: str, *, lowest: int | None = None) -> None:
        super().__init__(message)
        self.lowest = lowest


class FrameSource(Protocol):
    """Source of the frames of one range, in the order of their positions."""

    host: str

    def frames(self, position: int) -> gather.Frames:
        """Return the available frames from ``position`` to the end of the term that contains this
        position."""

    def more(self, position: int) -> bool:
        """Read further frames of the range, and discard the frames before ``position``. Return
        False if the range has no further frames."""

    def check(self, position: int) -> None:
        """Check that no publisher has overwritten the bytes that the task has copied. These bytes
        begin at ``position``.

        :raises RangeLost: the publisher may have overwritten some of these bytes.
        """

    def finish(self) -> None:
        """Check that no publisher has overwritten any bytes of the range while the task read them.
        The task calls this method when it has read the whole range.
        """


class Worker:
    """Keeps the logs and connections that this process has opened. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._controls: dict[tuple[Daemon, str | None], GroupControl] = {}
        self._logs: dict[str, tuple[tuple[int, int], gather.MappedLog]] = {}
        self._identities: dict[str, tuple[tuple[int, int], int, float]] = {}

    def control(self, daemon: Daemon, key_file: str | None) -> GroupControl:
        """Return a connection to a daemon that the options name."""
        with self._lock:
            key = (daemon, key_file)
            found = self._controls.get(key)
            if found is None:
                found = control_of(daemon, key_file, timeout_s=_TIMEOUT_S)
                self._controls[key] = found
            return found

    def log(self, path: str) -> gather.MappedLog:
        """Return the log file at ``path``, mapped into memory. If this file has been replaced by
        another since the last call, map the new file.

        :raises OSError, PenstockError: the file is missing, or is not a log.
        """
        status = os.stat(path)
        identity = (status.st_dev, status.st_ino)
        with self._lock:
            known = self._logs.pop(path, None)
            if known is None or known[0] != identity:
                known = (identity, gather.MappedLog.open(path))
            self._logs[path] = known
            while len(self._logs) > _MOST_LOGS:
                self._logs.pop(next(iter(self._logs)))
            return known[1]

    def daemon_id(self, directory: str | None) -> int | None:
        """Return the id of the daemon in the directory, or None if no daemon answers there."""
        daemon = Daemon(directory=directory)
        key = directory or ""
        try:
            status = os.stat(Path(directory or _default_directory()) / _SOCKET)
        except OSError:
            return None
        identity = (status.st_dev, status.st_ino)
        known = self._identities.get(key)
        if known is not None and known[0] == identity and (
            known[1] != 0 or time.monotonic() - known[2] < _NOBODY_S
        ):
            return known[1] or None
        found = 0
        try:
            groups = self.control(daemon, None).groups()
            found = groups[0].daemon_id if groups else 0
        except GroupError as error:
            _log.warning("the daemon of this host does not answer: %s", error)
        self._identities[key] = (identity, found, time.monotonic())
        return found or None


def _default_directory() -> str:
    from penstock.client._directory import daemon_directory

    return str(daemon_directory())


#: The worker of this process; the module's docstring says why it outlives a task.
worker: Final = Worker()


# ---- the two sources -----------------------------------------------------------------------------


class _Mapped:
    """Frames in a log of this host."""

    def __init__(
        self, options: SourceOptions, item: Range, holder: Holder, log: gather.MappedLog,
        directory: str | None,
    ) -> None:
        self._options = options
        self._range = item
        self._holder = holder
        self._log = log
        self._directory = directory
        self.host = holder.host

    def frames(self, position: int) -> gather.Frames:
        return self._log.frames(position, self._range.end)

    def more(self, position: int) -> bool:
        return False

    def check(self, position: int) -> None:
        if not self._log.intact(position):
            raise RangeLost(
                f"{self._range.session}: position {position} was overwritten while this task read "
                "it"
            )

    def finish(self) -> None:
        """Check that no publisher has overwritten the bytes that the task has read. If the daemon
        still retains the range, the data was not overwritten. A daemon that does not answer counts
        as dead, and the check passes: without a running daemon, no data is overwritten."""
        session = self._range.session
        try:
            state = worker.control(Daemon(directory=self._directory), None).state(
                name=self._options.subscription, channel=session.channel,
                stream_id=session.stream_id,
            )
        except DaemonUnreachable as error:
            _log.warning(
                "%s: the daemon did not confirm that it still retains the data that was read: %s",
                session, error,
            )
            return
        except GroupError as error:         # it answers, and may zero data that no group holds
            raise RangeLost(f"{session}: while it was read: {error}") from None
        for log in state.logs:
            if log.log_id == self._holder.log_id and log.retained_from <= self._range.start:
                return
        raise RangeLost(
            f"{session}: [{self._range.start}, {self._range.end}) was released while this task "
            "read it"
        )


class _Fetched:
    """Frames fetched from a daemon; of a session that returned, from several logs."""

    def __init__(
        self, item: Range, holder: Holder, control: Callable[[Holder], GroupControl]
    ) -> None:
        self._range = item
        self._holder = holder
        self._control = control
        self.host = holder.host
        self._pieces: Iterator[bytes] | None = None
        self._start = 0
        self._data = b""

    def frames(self, position: int) -> gather.Frames:
        session = self._range.session
        if self._pieces is None:
            self._pieces = _pieces(self._range, self._holder, self._control, position)
        if position >= self._start + len(self._data):
            self._data, self._start = b"", position
            self.more(position)
        return gather.frames_of(
            self._data, start=position, offset=position - self._start, end=self._range.end,
            session_id=session.session_id, stream_id=session.stream_id,
            initial_term_id=session.initial_term_id, term_length=self._range.term_length,
        )

    def more(self, position: int) -> bool:
        piece = next(self._pieces, None) if self._pieces is not None else None
        if not piece:
            return False
        rest = self._data[position - self._start :]
        self._data = rest + piece if rest else piece
        self._start = position
        return True

    def check(self, position: int) -> None:
        """Do nothing: the daemon checks the data that it sends for a fetch."""

    def finish(self) -> None:
        """As ``check``."""


def _pieces(
    item: Range, holder: Holder, control: Callable[[Holder], GroupControl], position: int
) -> Iterator[bytes]:
    """Yield the frames of a range, from each log of its chain. Not a method: a generator that
    refers to the object that has it would hold its connection until a garbage collection."""
    session, at = item.session, position
    for edge, following in (*holder.behind, (item.end, holder)):
        edge = min(edge, item.end)
        if at < edge:
            yield from control(holder).fetch(
                log_id=holder.log_id, session_id=session.session_id,
                initial_term_id=session.initial_term_id, start=at, end=edge,
            )
            at = edge
        holder = following


def sources(options: SourceOptions, item: Range) -> Iterator[FrameSource]:
    """Yield the sources from which a range can be read: logs on this host first, then daemons. If a
    source cannot be read, the caller logs the reason and tries the next source.
    :raises InvalidArgument: option keyFile names no key on this host.
    """
    where = local_directory(options)
    mine = worker.daemon_id(where)
    for holder in item.holders:
        if holder.daemon_id != mine or holder.behind:
            continue
        try:
            log = worker.log(holder.log_path)
            if not _is_of(log.facts, item):
                _log.warning(
                    "%s: the log %s now belongs to another stream", item.session, holder.log_path
                )
                continue
            yield _Mapped(options, item, holder, log, where)
        except (OSError, PenstockError) as error:
            _log.warning("%s: this host's log cannot be read: %s", item.session, error)

    def control(holder: Holder) -> GroupControl:
        return worker.control(options.daemons[holder.daemon], options.key_file)

    for holder in item.holders:
        yield _Fetched(item, holder, control)


def _is_of(facts: gather.LogFacts, item: Range) -> bool:
    """Return whether the log is that of the range."""
    session = item.session
    return (facts.stream_id, facts.session_id, facts.initial_term_id) == (
        session.stream_id, session.session_id, session.initial_term_id
    )


def local_directory(options: SourceOptions) -> str | None:
    """Return the daemon directory of this host. If the query uses daemons over TCP and the
    environment variable PENSTOCK_DIR of this host is set, this variable names the directory.
    Otherwise, the option daemonDir names it.
    """
    if options.remote:
        return os.environ.get("PENSTOCK_DIR") or options.daemon_dir
    return options.daemon_dir

