# SPDX-License-Identifier: Apache-2.0
"""Objects that a Python worker of Spark keeps between its tasks: a client and its publications.

A task of a small batch takes some tens of milliseconds. Creating a connection and a publication
takes as long as such a task. A worker process therefore keeps its client and its publications for
later tasks. A worker runs one task at a time, so it can use exclusive publications. A session
therefore contains the rows of several tasks of this worker process, one task after the other.
"""

from __future__ import annotations

import functools
import os
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import attrs

from penstock.client import Client, Offer, Publication, connect
from penstock.client._directory import daemon_directory, not_allowed
from penstock.client._group_port import SOCKET_NAME as GROUPS_SOCKET
from penstock.core.errors import InvalidArgument, PenstockError, TimeoutExpired
from penstock.spark_bridge._listening import refusal
from penstock.spark_bridge._sink_options import SinkOptions

_FIRST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.02
_CONNECT_PAUSE_S: Final = 0.1
_ABSENT_S: Final = 0.5          # for a daemon that is just being started
_LOCK_NAME: Final = "daemon.lock"
_KEPT: Final = 256


def _is_drained(row: Mapping[str, Any], position: int, how: str) -> bool:
    """Return whether all live receivers, or on IPC all readers, have consumed the data. A receiver
    that left earlier does not count."""
    if row["consumer_position"] < position:
        return False
    if how == "sent":
        return True
    peers = row["peers"]
    if not peers and not row["channel"].startswith("aeron:ipc"):
        return False
    return bool(row["connected"]) and all(peer["position"] >= position for peer in peers)


class SinkError(PenstockError):
    """Raised if a task could not publish its rows. The exception's text names the stream, the
    cause, and the receiver or reader that caused it, if known."""


@attrs.frozen(kw_only=True)
class Pipe:
    """One publication of the worker. A publication with a time limit: each send succeeds or fails
    within this time.
    """

    client: Client
    publication: Publication
    timeout_s: float
    session_id: int

    def send(self, message: bytes, *, reserved_value: int = 0) -> None:
        """Send one message. If the stream has no room for the message within the time limit, raise
        SinkError.
        """
        try:
            self.publication.send(message, self.timeout_s, reserved_value=reserved_value)
        except TimeoutExpired as error:
            raise self._held() from error
        self._same_session()

    def send_batch(self, messages: object) -> None:
        """Send a batch of messages. The time limit applies to the batch as a whole, so the batch
        must not be too large.
        """
        try:
            self.publication.send_batch(messages, self.timeout_s)
        except TimeoutExpired as error:
            raise self._held() from error
        self._same_session()

    def drain(self, how: str) -> None:
        """Wait for the published data. If ``how`` is ``sent``, wait until the daemon has sent all
        data; on ``aeron:ipc``, do not wait. If ``how`` is ``consumed``, wait until the readers of
        all receivers have consumed all data.
        """
        if how == "sent" and self.publication.channel.startswith("aeron:ipc"):
            return
        position = self.publication.position
        deadline = time.monotonic() + self.timeout_s
        pause_s = _FIRST_PAUSE_S
        while True:
            row = self._row()
            if row is not None and _is_drained(row, position, how):
                break
            if time.monotonic() > deadline:
                raise self._not_drained(row, position, how)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        self._same_session()

    def _row(self) -> Mapping[str, Any] | None:
        """Return the publication's entry in the daemon's status."""
        wanted = self.publication.original_id
        rows = self.client.status()["publications"]
        return next((row for row in rows if row["publication_id"] == wanted), None)

    def _same_session(self) -> None:
        if self.publication.session_id != self.session_id:
            raise SinkError(
                f"{self._stream()} continues in another session after its daemon's death, and the "
                "messages that were sent last may be lost: the task has to run again"
            )

    def _not_drained(
        self, row: Mapping[str, Any] | None, position: int, how: str
    ) -> SinkError:
        """The sender waits for the receivers although publishers have room."""
        if row is None or not row["connected"] or not row["peers"]:
            return self._held()
        slowest = min(row["peers"], key=lambda peer: int(peer["position"]) + int(peer["window"]))
        why = f" ({slowest['reason']})" if slowest["reason"] else ""
        return SinkError(
            f"{self._stream()} was not {how} to its end within {self.timeout_s:g} s, only to "
            f"position {row['consumer_position']} of {position}. The cause is receiver_window: "
            f"receiver {slowest['receiver_id']} at {slowest['address']} has consumed the stream to "
            f"position {slowest['position']}, and its window is {slowest['window']} bytes{why}. "
            "Make the receiver faster, or raise the option timeout"
        )

    def _stream(self) -> str:
        return f"stream {self.publication.stream_id} on {self.publication.channel}"

    def _held(self) -> SinkError:
        pub = self.publication
        what = f"{self._stream()} was held for {self.timeout_s:g} s"
        if not pub.is_connected:
            return SinkError(
                f"{what}: {Offer.NOT_CONNECTED.name}, nobody receives it; start the receiver, or "
                "raise the option timeout"
            )
        try:
            pressure = pub.pressure()
        except PenstockError as error:
            return SinkError(f"{what}; its daemon does not say why: {error}")
        by = f" by {pressure.culprit}" if pressure.culprit else ""
        why = f" ({pressure.reason})" if pressure.reason else ""
        return SinkError(
            f"{what}: cause {pressure.cause}{by}{why}; make the receiver faster, or raise the "
            "option timeout"
        )


@attrs.frozen(kw_only=True)
class _Where:
    channel: str
    stream_id: int
    key: bytes


class Outlet:
    """Keeps the client and the publications of this process on the daemon of one directory.  For
    one thread."""

    def __init__(self, directory: str | None) -> None:
        self.client: Client = connect(directory, name=f"spark sink {os.getpid()}")
        self._publications: OrderedDict[_Where, Publication] = OrderedDict()

    def pipe(self, options: SinkOptions, key: bytes) -> Pipe:
        """Return the publication on which this process sends the rows of a key. Create this
        publication, unless an earlier task has created it."""
        where = _Where(channel=options.channel, stream_id=options.stream_id, key=key)
        found = self._publications.get(where)
        if found is None or found.is_closed:
            while len(self._publications) >= max(_KEPT, options.max_keys + 1):
                _oldest, publication = self._publications.popitem(last=False)
                publication.close()
            found = self.client.add_exclusive_publication(options.channel, options.stream_id)
            self._publications[where] = found
        self._publications.move_to_end(where)
        return Pipe(
            client=self.client, publication=found, timeout_s=options.timeout_s,
            session_id=found.session_id,
        )

    def wait_usable(self, deadline: float) -> bool:
        """Wait until the daemon of the directory answers; after a restart, this is a new daemon.
        Return False if no daemon answers before ``deadline``.
        """
        while not self.client.is_closed:
            if self.client.is_daemon_alive:
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_LONGEST_PAUSE_S)
        return False


@functools.cache
def _outlets() -> dict[tuple[int, str | None], Outlet]:
    """Return the outlets of this process (see the module's docstring)."""
    return {}


def outlet(directory: str | None, timeout_s: float) -> Outlet:
    """Return the object that holds this process's publications on the daemon of a directory. If the
    daemon is being restarted, wait until the new daemon answers. If the directory has no socket and
    no lock file of a daemon, fail within a second.

    :raises SinkError: no daemon answers in time.
    """
    deadline = time.monotonic() + timeout_s
    key = (os.getpid(), directory)
    found = _outlets().get(key)
    if found is not None:
        if found.wait_usable(deadline):
            return found
        forget(directory)
    _await_daemon(directory, deadline)
    while True:
        try:
            made = _outlets()[key] = Outlet(directory)
            return made
        except PenstockError as error:
            if time.monotonic() > deadline:
                raise no_daemon(directory, str(error)) from error
        time.sleep(_CONNECT_PAUSE_S)


def _await_daemon(directory: str | None, deadline: float) -> None:
    """Wait until a daemon listens. A killed daemon leaves its socket and its lock file behind. A
    daemon that hands over its streams leaves the lock file. In both cases the worker waits for a
    new daemon. A daemon that starts replaces the socket, so for a moment there is none. A directory
    that has neither is probably a wrong one.

    :raises SinkError: no daemon listens in time, or this user may not connect.
    """
    path = daemon_directory(directory) / GROUPS_SOCKET
    last_seen = time.monotonic()
    while (error := refusal(path)) is not None:
        if isinstance(error, PermissionError):
            raise SinkError(f"option daemonDir: {not_allowed(path)}") from error
        now = time.monotonic()
        if not isinstance(error, FileNotFoundError) or path.with_name(_LOCK_NAME).exists():
            last_seen = now
        if now > deadline or now - last_seen > _ABSENT_S:
            raise no_daemon(directory, f"{path.name}: {error.strerror}") from error
        time.sleep(_CONNECT_PAUSE_S)


def no_daemon(directory: str | None, why: str) -> SinkError:
    """Return the error for a directory without a daemon."""
    return SinkError(
        f"no penstock daemon for the sink in {daemon_directory(directory)}: {why}. Start a "
        "daemon on every worker host, and set daemonDir or the workers' PENSTOCK_DIR"
    )


def forget(directory: str | None) -> None:
    """Close the publications after a failed task, so that the next task begins with new
    sessions."""
    found = _outlets().pop((os.getpid(), directory), None)
    if found is not None:
        found.client.close()


def too_many_keys(options: SinkOptions, found: int) -> InvalidArgument:
    return InvalidArgument(
        f"column {options.key_column} has more than maxKeys={options.max_keys} values in one task "
        f"({found} so far), and each has a publication of its own: repartition by it, or raise "
        "maxKeys"
    )
