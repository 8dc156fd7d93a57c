# SPDX-License-Identifier: Apache-2.0
"""Register a client with the daemon: exchange the first messages on the socket ``lease.sock``. The
daemon's answer, the lease, has the client's id and file descriptors."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Final

from penstock.client._directory import no_daemon, not_allowed
from penstock.config.protocol import codec, control
from penstock.core.errors import (
    ChannelRefused,
    DaemonGone,
    DaemonNotRunning,
    PenstockError,
    StorageError,
    TimeoutExpired,
    VersionMismatch,
)

#: Number of descriptors: eventfds of sender and receiver; one more if the client watches.
_GRANT_FDS: Final = 2
_INT_BYTES: Final = 4


def connect_lease(directory: Path, timeout_s: float) -> socket.socket:
    path = directory / "lease.sock"
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    connection.settimeout(max(timeout_s, 0.001))
    try:
        connection.connect(os.fspath(path))
    except TimeoutError:
        connection.close()
        raise TimeoutExpired(
            f"the daemon in {directory} accepted no connection within {timeout_s:g} s"
        ) from None
    except OSError as error:
        connection.close()
        if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR):
            raise DaemonNotRunning(no_daemon(directory)) from None
        if error.errno in (errno.EACCES, errno.EPERM):
            raise not_allowed(path) from None
        raise DaemonNotRunning(f"cannot connect to {path}: {error.strerror}") from None
    return connection


def exchange_lease(
    connection: socket.socket, request: control.LeaseRequest, directory: Path
) -> tuple[control.LeaseGrant, list[int]]:
    try:
        connection.send(codec.encode(request, 1))
        data, ancillary, _flags, _address = connection.recvmsg(
            control.MAX_MESSAGE_BYTES,
            socket.CMSG_SPACE((_GRANT_FDS + 1) * _INT_BYTES),
            socket.MSG_CMSG_CLOEXEC,
        )
    except TimeoutError:
        raise TimeoutExpired(f"the daemon in {directory} did not grant a lease in time") from None
    except OSError as error:
        raise DaemonGone(
            f"the daemon in {directory} closed the connection: {error.strerror}"
        ) from None
    fds = _descriptors(ancillary)
    try:
        grant = _check_grant(data, fds, _GRANT_FDS + request.watch, directory)
    except BaseException:
        for fd in fds:
            close_fd(fd)
        raise
    return grant, fds


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            whole = len(data) - len(data) % _INT_BYTES
            fds.extend(memoryview(data[:whole]).cast("i"))
    return fds


def _check_grant(
    data: bytes, fds: list[int], expected: int, directory: Path
) -> control.LeaseGrant:
    if not data:
        raise DaemonGone(
            f"the daemon in {directory} closed the connection before it granted a lease"
        )
    try:
        _correlation, message = codec.decode(data)
    except control.ControlError as error:
        raise VersionMismatch(f"cannot understand the daemon in {directory}: {error}") from None
    if isinstance(message, control.Failure):
        raise refusal(message)
    if not isinstance(message, control.LeaseGrant) or len(fds) != expected:
        raise VersionMismatch(f"the daemon in {directory} did not grant a lease as expected")
    return message


def refusal(failure: control.Failure) -> PenstockError:
    if failure.code == "storage":
        return StorageError(failure.message)
    if failure.code == "not_leased":
        return DaemonGone(failure.message)
    return ChannelRefused(failure.message, code=failure.code)


def close_fd(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        return
