# SPDX-License-Identifier: Apache-2.0
"""Inspect a running daemon without connecting to it as a client. The functions map the daemon's
shared memory read-only."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmq

from penstock.client._directory import no_daemon, not_allowed
from penstock.client._lease import connect_lease, refusal
from penstock.config.protocol import codec, control
from penstock.core.admin import Cnc
from penstock.core.errors import (
    ChannelRefused,
    DaemonGone,
    DaemonNotRunning,
    NativeError,
    TimeoutExpired,
    VersionMismatch,
)

SENDER_POSITION_TYPE = 2
SUBSCRIBER_POSITION_TYPE = 4
_PROBE_S = 1.0
_ANSWER_S = 30.0


@contextmanager
def open_counters(directory: Path) -> Iterator[Cnc]:
    """Open ``cnc.dat`` of a daemon directory read-only."""
    path = directory / "cnc.dat"
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError:
        raise not_allowed(path) from None
    except OSError:
        raise DaemonNotRunning(no_daemon(directory)) from None
    try:
        cnc = Cnc.open(str(directory), read_only=True)
    except NativeError as error:
        raise DaemonNotRunning(f"cannot read {directory}: {error}") from None
    try:
        yield cnc
    finally:
        cnc.close()


def request_status(directory: Path, timeout_s: float) -> dict[str, Any]:
    """Request the status over the daemon's control socket, without becoming a client of the
    daemon."""
    if not _answers(directory / "control.sock"):
        raise DaemonNotRunning(no_daemon(directory))
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.connect(f"ipc://{directory}/control.sock")
        dealer.send(codec.encode(control.GetStatus(), 1))
        deadline = time.monotonic() + timeout_s
        while True:
            left_ms = int((deadline - time.monotonic()) * 1000)
            if left_ms <= 0 or not dealer.poll(left_ms):
                raise TimeoutExpired(
                    f"the daemon in {directory} did not answer within {timeout_s:g} s"
                )
            answer = _answer(dealer.recv())
            if answer is not None:
                return answer


def request_drain(
    directory: Path, timeout_s: float, *, discard: bool = False
) -> control.Drained:
    """End the daemon and all its streams; return when its files are removed.

    :param timeout_s: longest time for which the daemon waits until receivers have all data.
    :param discard: end the daemon even if data is unsent, or if a consumer group still needs data.

    :raises DaemonNotRunning: no daemon runs in the directory.
    :raises DaemonGone: the daemon ended without a drain, because it was already stopping, or
        because it died.
    :raises ChannelRefused: this user may not end the daemon.
    :raises TimeoutExpired: the daemon does not answer.
    """
    request = control.Drain(timeout_ns=round(timeout_s * 1e9), discard=discard)
    with connect_lease(directory, _ANSWER_S) as connection:
        connection.settimeout(timeout_s + _ANSWER_S)
        try:
            connection.send(codec.encode(request, 1))
            frame = connection.recv(control.MAX_MESSAGE_BYTES)
            if not frame:
                raise DaemonGone(f"the daemon in {directory} is stopping already, without a drain")
            _, message = codec.decode(frame)
            if isinstance(message, control.Failure):
                raise refusal(message)
            if not isinstance(message, control.Drained):
                raise VersionMismatch(f"the daemon answered Drain with {type(message).__name__}")
            while connection.recv(control.MAX_MESSAGE_BYTES):
                pass                # it says nothing more, and hangs up at its end
        except TimeoutError:
            raise TimeoutExpired(
                f"the daemon in {directory} is not drained after {timeout_s + _ANSWER_S:g} s"
            ) from None
        except OSError as error:
            raise DaemonGone(
                f"the daemon in {directory} closed the connection: {error.strerror}"
            ) from None
        except control.ControlError as error:
            raise VersionMismatch(f"cannot understand the daemon: {error}") from None
    return message


def _answers(path: Path) -> bool:
    """Return whether a process listens on a socket; a killed daemon leaves the file.

    :raises ChannelRefused: this user may not connect; code ``permission``.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(os.fspath(path))
        except TimeoutError:
            return True             # a process listens, and is busy
        except PermissionError:
            raise not_allowed(path) from None
        except OSError as error:
            return error.errno == errno.EAGAIN
    return True


def _answer(frame: bytes) -> dict[str, Any] | None:
    try:
        correlation, message = codec.decode(frame)
    except control.ControlError as error:
        raise VersionMismatch(f"cannot understand the daemon: {error}") from None
    if correlation != 1:
        return None
    if isinstance(message, control.Failure):
        raise ChannelRefused(message.message, code=message.code)
    if not isinstance(message, control.Status):
        raise VersionMismatch(f"the daemon answered GetStatus with {type(message).__name__}")
    return message.snapshot


def sent_position(cnc: Cnc, publication_id: int) -> int | None:
    """Return the position up to which the daemon has sent a publication's data. Return None for an
    IPC publication, which has no counter of sent bytes."""
    for counter in cnc.counters():
        if counter.type_id == SENDER_POSITION_TYPE and counter.registration_id == publication_id:
            return counter.value
    return None
