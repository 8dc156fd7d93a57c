# SPDX-License-Identifier: Apache-2.0
"""The driver port over the daemon's two sockets.

``lease.sock`` (SEQPACKET) is the client's life: the daemon answers the first datagram with a grant
and two eventfds, and a hang-up in either direction is a death.  ``control.sock`` (ZeroMQ) carries
requests, answers and notices.  One thread per client owns the ZeroMQ socket; other threads hand it
requests through a queue and an eventfd, and sleep until it hands them the answer.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
import time
import weakref
from collections import deque
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import zmq

from penstock.client._port import Lease, Listener, Notice, PortState, Request
from penstock.config import codec, control
from penstock.core.errors import (
    ChannelRefused,
    ClosedError,
    DaemonGone,
    DaemonNotRunning,
    ForkedError,
    PenstockError,
    StorageError,
    TimeoutExpired,
    VersionMismatch,
)

_GRANT_FDS: Final = 2
_INT_BYTES: Final = 4
_T = TypeVar("_T")


@attrs.define(eq=False)
class _Pending:
    """A request under way.  ``outcome`` is the reply or the exception to raise."""

    request: Any
    done: threading.Event = attrs.field(factory=threading.Event)
    outcome: Any = None

    def finish(self, outcome: Any) -> None:
        self.outcome = outcome
        self.done.set()


class ZmqPort:
    """See :class:`penstock.client._port.DriverPort`, which this implements."""

    def __init__(self, directory: Path, *, name: str, library_version: str, timeout_s: float):
        """Takes the lease and says hello.

        :raises DaemonNotRunning: nobody listens in ``directory``.
        :raises VersionMismatch: the daemon does not understand us, or we it.
        :raises TimeoutExpired: no answer within ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        request = control.LeaseRequest(name=name, library_version=library_version)
        self._lease_socket = _connect_lease(directory, timeout_s)
        try:
            grant, fds = _exchange_lease(self._lease_socket, request, directory)
        except BaseException:
            self._lease_socket.close()
            raise
        self._lease = Lease(
            directory=directory,
            client_id=grant.client_id,
            client_slot=grant.client_slot,
            daemon_id=grant.daemon_id,
            daemon_epoch=grant.daemon_epoch,
            daemon_version=grant.daemon_version,
            sender_wake_fd=fds[0],
            receiver_wake_fd=fds[1],
        )
        self._pid = os.getpid()
        self._state = PortState.OPEN
        self._lock = threading.Lock()
        self._outbox: deque[tuple[int, Any]] = deque()
        self._pending: dict[int, _Pending] = {}
        self._notices: dict[int, deque[Notice]] = {}
        self._next_correlation = 1
        self._listener: weakref.ref[Listener] | None = None
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._context = zmq.Context()
        self._thread = threading.Thread(target=self._run, name="penstock-port", daemon=True)
        self._thread.start()
        try:
            self._call(control.Hello(token=grant.token), deadline - time.monotonic(), control.Done)
        except BaseException:
            self.close()
            raise

    # ---- the port's interface --------------------------------------------------------------------

    @property
    def lease(self) -> Lease:
        return self._lease

    @property
    def state(self) -> PortState:
        return self._state

    def listen(self, listener: Listener) -> None:
        self._listener = weakref.ref(listener)

    def add_publication(
        self, request: control.AddPublication, timeout_s: float
    ) -> control.PublicationReady:
        return self._call(request, timeout_s, control.PublicationReady)

    def add_subscription(
        self, request: control.AddSubscription, timeout_s: float
    ) -> control.SubscriptionReady:
        return self._call(request, timeout_s, control.SubscriptionReady)

    def add_counter(self, request: control.AddCounter, timeout_s: float) -> control.CounterReady:
        return self._call(request, timeout_s, control.CounterReady)

    def perform(self, request: Request, timeout_s: float) -> control.Done:
        return self._call(request, timeout_s, control.Done)

    def status(self, timeout_s: float) -> control.Status:
        return self._call(control.GetStatus(), timeout_s, control.Status)

    def notices(self, registration_id: int) -> deque[Notice]:
        with self._lock:
            return self._notices.setdefault(registration_id, deque())

    def forget(self, registration_id: int) -> None:
        with self._lock:
            self._notices.pop(registration_id, None)

    def close(self) -> None:
        with self._lock:
            already = self._state is PortState.CLOSED
            self._state = PortState.CLOSED
        if already or os.getpid() != self._pid:
            return
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def abandon_in_child(self) -> None:
        self._state = PortState.CLOSED
        self._lease_socket.close()
        _close_fd(self._wake_fd)

    # ---- requests, on the caller's thread --------------------------------------------------------

    def _call(self, request: Any, timeout_s: float, expected: type[_T]) -> _T:
        pending = _Pending(request)
        with self._lock:
            self._require_open()
            correlation = self._next_correlation
            self._next_correlation += 1
            self._pending[correlation] = pending
            self._outbox.append((correlation, request))
        self._wake()
        answered = pending.done.wait(max(0.0, timeout_s))
        with self._lock:
            self._pending.pop(correlation, None)
            answered = answered or pending.done.is_set()
        if not answered:
            raise TimeoutExpired(
                f"the daemon in {self._lease.directory} did not answer "
                f"{type(request).__name__} within {timeout_s:g} s"
            )
        if isinstance(pending.outcome, BaseException):
            raise pending.outcome
        if not isinstance(pending.outcome, expected):
            raise VersionMismatch(
                f"the daemon answered {type(request).__name__} with "
                f"{type(pending.outcome).__name__}, expected {expected.__name__}"
            )
        return pending.outcome

    def _require_open(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError("this client belongs to the parent process: connect anew")
        if self._state is PortState.GONE:
            raise DaemonGone(f"the daemon in {self._lease.directory} is gone: connect again")
        if self._state is PortState.CLOSED:
            raise ClosedError("the client is closed")

    def _wake(self) -> None:
        with self._lock:
            if self._wake_fd >= 0:  # else the thread has ended
                os.eventfd_write(self._wake_fd, 1)

    # ---- the port's own thread -------------------------------------------------------------------

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        dealer = self._context.socket(zmq.DEALER)
        try:
            dealer.setsockopt(zmq.LINGER, 0)
            dealer.connect(f"ipc://{self._lease.directory}/control.sock")
            self._serve(dealer)
        except Exception as error:  # a bug of ours must not leave callers waiting
            self._fail_pending(DaemonGone(f"the connection to the daemon failed: {error}"))
        finally:
            dealer.close()
            self._end()

    def _serve(self, dealer: zmq.Socket[bytes]) -> None:
        poller = zmq.Poller()
        poller.register(dealer, zmq.POLLIN)
        poller.register(self._wake_fd, zmq.POLLIN)
        poller.register(self._lease_socket.fileno(), zmq.POLLIN)
        lease_fd = self._lease_socket.fileno()
        while self._state is PortState.OPEN:
            ready = dict(poller.poll())
            if self._wake_fd in ready:
                _drain_eventfd(self._wake_fd)
            self._drain_dealer(dealer)
            if lease_fd in ready and self._lease_ended():
                return
            self._send_outbox(dealer)

    def _lease_ended(self) -> bool:
        try:
            return self._lease_socket.recv(control.MAX_MESSAGE_BYTES, socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _send_outbox(self, dealer: zmq.Socket[bytes]) -> None:
        while self._outbox:
            correlation, request = self._outbox.popleft()
            try:
                dealer.send(codec.encode(request, correlation), zmq.DONTWAIT)
            except (zmq.ZMQError, control.ControlError) as error:
                self._settle(correlation, PenstockError(f"cannot send to the daemon: {error}"))

    def _drain_dealer(self, dealer: zmq.Socket[bytes]) -> None:
        while True:
            try:
                frame = dealer.recv(zmq.DONTWAIT)
            except zmq.Again:
                return
            try:
                correlation, message = codec.decode(frame)
            except control.ControlError as error:
                self._fail_pending(VersionMismatch(f"cannot understand the daemon: {error}"))
                continue
            if correlation == 0:
                self._take_notice(message)
            else:
                self._take_reply(correlation, message)

    def _take_notice(self, message: Any) -> None:
        if isinstance(message, control.PublicationError):
            registration = message.registration_id
        elif isinstance(message, (control.ImageAvailable, control.ImageUnavailable)):
            registration = message.subscription_id
        else:
            return  # DaemonStopping: the hang-up of the lease follows
        with self._lock:
            queue = self._notices.get(registration)
            if queue is None:
                return  # removed meanwhile
            queue.append(message)
        listener = self._listener() if self._listener is not None else None
        if listener is not None:
            listener.on_notice()

    def _take_reply(self, correlation: int, message: Any) -> None:
        if isinstance(message, (control.SubscriptionReady, control.PublicationReady)):
            with self._lock:
                self._notices.setdefault(message.registration_id, deque())
        outcome = _refusal(message) if isinstance(message, control.Failure) else message
        if not self._settle(correlation, outcome):
            self._undo(message)

    def _settle(self, correlation: int, outcome: Any) -> bool:
        with self._lock:
            pending = self._pending.pop(correlation, None)
            if pending is not None:
                pending.finish(outcome)
        return pending is not None

    def _undo(self, message: Any) -> None:
        """An answer that came after its caller gave up must not leave a registration behind."""
        removal: Any
        if isinstance(message, control.PublicationReady):
            removal = control.RemovePublication(registration_id=message.registration_id)
        elif isinstance(message, control.SubscriptionReady):
            removal = control.RemoveSubscription(registration_id=message.registration_id)
        elif isinstance(message, control.CounterReady):
            removal = control.RemoveCounter(registration_id=message.registration_id)
        else:
            return
        with self._lock:
            self._notices.pop(message.registration_id, None)
            correlation = self._next_correlation
            self._next_correlation += 1
            self._outbox.append((correlation, removal))

    def _fail_pending(self, error: PenstockError) -> None:
        with self._lock:
            waiting = list(self._pending.values())
            self._pending.clear()
            self._outbox.clear()
        for pending in waiting:  # each its own: a raised exception carries its traceback
            pending.finish(type(error)(*error.args))

    def _end(self) -> None:
        """Last act of the thread: nobody may wait for an answer that cannot come any more."""
        with self._lock:
            gone = self._state is PortState.OPEN
            if gone:
                self._state = PortState.GONE
        where = self._lease.directory
        self._fail_pending(
            DaemonGone(f"the daemon in {where} is gone: connect again")
            if gone
            else ClosedError("the client is closed")
        )
        listener = self._listener() if self._listener is not None else None
        if gone and listener is not None:
            listener.on_gone()
        self._lease_socket.close()
        with self._lock:
            os.close(self._wake_fd)
            self._wake_fd = -1
        self._context.term()


# ---- lease ---------------------------------------------------------------------------------------


def _connect_lease(directory: Path, timeout_s: float) -> socket.socket:
    path = directory / "lease.sock"
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    connection.settimeout(max(timeout_s, 0.001))
    try:
        connection.connect(os.fspath(path))
    except TimeoutError:
        connection.close()
        raise TimeoutExpired(
            f"the daemon in {directory} took no connection within {timeout_s:g} s"
        ) from None
    except OSError as error:
        connection.close()
        if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR):
            raise DaemonNotRunning(
                f"no daemon is running in {directory}: start one with "
                f"'penstock daemon --dir {directory}', or name another directory"
            ) from None
        if error.errno in (errno.EACCES, errno.EPERM):
            raise ChannelRefused(
                f"not allowed to connect to {path}: join the daemon's group", code="permission"
            ) from None
        raise DaemonNotRunning(f"cannot connect to {path}: {error.strerror}") from None
    return connection


def _exchange_lease(
    connection: socket.socket, request: control.LeaseRequest, directory: Path
) -> tuple[control.LeaseGrant, list[int]]:
    try:
        connection.send(codec.encode(request, 1))
        data, ancillary, _flags, _address = connection.recvmsg(
            control.MAX_MESSAGE_BYTES,
            socket.CMSG_SPACE(_GRANT_FDS * _INT_BYTES),
            socket.MSG_CMSG_CLOEXEC,
        )
    except TimeoutError:
        raise TimeoutExpired(f"the daemon in {directory} did not grant a lease in time") from None
    except OSError as error:
        raise DaemonGone(f"the daemon in {directory} hung up: {error.strerror}") from None
    fds = _descriptors(ancillary)
    try:
        grant = _check_grant(data, fds, directory)
    except BaseException:
        for fd in fds:
            _close_fd(fd)
        raise
    return grant, fds


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            whole = len(data) - len(data) % _INT_BYTES
            fds.extend(memoryview(data[:whole]).cast("i"))
    return fds


def _check_grant(data: bytes, fds: list[int], directory: Path) -> control.LeaseGrant:
    if not data:
        raise DaemonGone(f"the daemon in {directory} hung up before it granted a lease")
    try:
        _correlation, message = codec.decode(data)
    except control.ControlError as error:
        raise VersionMismatch(f"cannot understand the daemon in {directory}: {error}") from None
    if isinstance(message, control.Failure):
        raise _refusal(message)
    if not isinstance(message, control.LeaseGrant) or len(fds) != _GRANT_FDS:
        raise VersionMismatch(f"the daemon in {directory} did not grant a lease as expected")
    return message


def _refusal(failure: control.Failure) -> PenstockError:
    if failure.code == "storage":
        return StorageError(failure.message)
    if failure.code == "not_leased":
        return DaemonGone(failure.message)
    return ChannelRefused(failure.message, code=failure.code)


# ---- descriptors ---------------------------------------------------------------------------------


def _drain_eventfd(fd: int) -> None:
    try:
        os.eventfd_read(fd)
    except BlockingIOError:
        return


def _close_fd(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        return
