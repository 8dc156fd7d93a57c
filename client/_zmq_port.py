# SPDX-License-Identifier: Apache-2.0
"""The driver port: exchange messages with the daemon over its two sockets.

Client and daemon have a connection on ``lease.sock`` (SEQPACKET). If this connection closes, the
client knows that the daemon has ended, or the daemon knows that the client has ended. The daemon
answers the client's first datagram on ``lease.sock`` with a lease (the client's id and other
values) and two eventfds. ``control.sock`` (ZeroMQ) carries requests, answers and notices. One
thread per client owns the ZeroMQ socket; other threads pass requests to this thread through a queue
and an eventfd, and sleep until the thread returns the reply.
"""

from __future__ import annotations

import contextlib
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

from penstock.client._directory import gone_text
from penstock.client._lease import close_fd, connect_lease, exchange_lease, refusal
from penstock.client._port import Lease, Listener, Notice, PortState, Request, Returning
from penstock.config.protocol import codec, control
from penstock.core import client as core
from penstock.core.errors import (
    ClosedError,
    DaemonGone,
    ForkedError,
    PenstockError,
    TimeoutExpired,
    VersionMismatch,
)

_RETRY_MS: Final = 20               # between tries to find a new daemon
_ATTEMPT_S: Final = 5.0             # of one exchange with a new daemon
_T = TypeVar("_T")


@attrs.define(eq=False)
class _Pending:
    """A request in progress. ``outcome`` is the reply or the exception to raise."""

    request: Any
    done: threading.Event = attrs.field(factory=threading.Event)
    outcome: Any = None
    repeated: bool = False      # repeated to a new daemon: the dead daemon may have done it

    def finish(self, outcome: Any) -> None:
        self.outcome = outcome
        self.done.set()


class ZmqPort:
    """Implements the interface :class:`penstock.client._port.DriverPort` over two Unix sockets."""

    def __init__(
        self,
        directory: Path,
        *,
        name: str,
        library_version: str,
        timeout_s: float,
        reattach_timeout_s: float = 0.0,
        watch: bool = False,
        linger_ns: int = 0,
        returning: Returning | None = None,
    ):
        """Register a new client with the daemon: request a lease on ``lease.sock``, then send Hello
        on ``control.sock``.

        :param linger_ns: time for which the daemon keeps this client's objects after the process
            has ended.
        :param returning: a client of an ended process, which this process takes over; None: none.

        :param reattach_timeout_s: time to wait for a new daemon after the old daemon has ended.
        :param watch: True to request a third eventfd, which the daemon writes to wake the client's
            event loop.

        :raises DaemonNotRunning: no daemon listens in ``directory``.
        :raises VersionMismatch: daemon and client have different protocol versions.
        :raises TimeoutExpired: the daemon did not answer within ``timeout_s``.
        """
        deadline = time.monotonic() + timeout_s
        request = control.LeaseRequest(
            name=name, library_version=library_version, watch=watch, linger_ns=linger_ns
        )
        self._request = request
        if returning is not None:
            request = attrs.evolve(request, client_id=returning.client_id, token=returning.token)
        self._reattach_s = reattach_timeout_s
        self._lease_socket = connect_lease(directory, timeout_s)
        try:
            grant, fds = exchange_lease(self._lease_socket, request, directory)
        except BaseException:
            self._lease_socket.close()
            raise
        self._lease = _lease_of(directory, grant, fds)
        self._token = grant.token
        self._pid = os.getpid()
        self._state = PortState.OPEN
        self._why_gone = ""             # part of an error text
        self._refusal = ""              # why the last try to come back failed
        self._lock = threading.Lock()
        self._outbox: deque[tuple[int, Any]] = deque()
        self._pending: dict[int, _Pending] = {}
        self._notices: dict[int, deque[Notice]] = {}
        self._late: list[Any] = []      # removals requested while the daemon is away
        self._known: set[int] = set()   # registrations with a reply; used by the port's thread
        #: Registrations that this process has from an ended one; None: the daemon knew it not.
        self.resumed: frozenset[int] | None = None
        self._next_correlation = 1
        self._listener: weakref.ref[Listener] | None = None
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._context = zmq.Context()
        self._thread = threading.Thread(target=self._run, name="penstock-port", daemon=True)
        self._thread.start()
        try:
            self._call(control.Hello(token=grant.token), deadline - time.monotonic(), control.Done)
            if returning is not None and grant.token == returning.token:
                self._go_on(returning, deadline - time.monotonic())
        except BaseException:
            self.close()
            raise

    def _go_on(self, returning: Returning, timeout_s: float) -> None:
        """Continue with the registrations of an ended process."""
        for registration_id in returning.registrations:
            self.notices(registration_id)
        resume = control.Resume(registration_ids=sorted(returning.registrations))
        kept = self._call(resume, timeout_s, control.Resumed).registration_ids
        self._known.update(kept)
        self.resumed = frozenset(kept)

    # ---- the port's interface --------------------------------------------------------------------

    @property
    def token(self) -> bytes:
        """Secret that proves the client's identity to the daemon."""
        return self._token

    @property
    def lease(self) -> Lease:
        return self._lease

    @property
    def state(self) -> PortState:
        return self._state

    @property
    def why_gone(self) -> str:
        return self._why_gone

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
        if isinstance(request, _REMOVALS):
            with self._lock:
                if self._state is PortState.AWAY:
                    self._late.append(request)      # a new daemon gets the removal
                    return control.Done()
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
        close_fd(self._wake_fd)

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
            raise ForkedError("this client belongs to the parent process: connect again")
        if self._state is PortState.GONE:
            raise DaemonGone(gone_text(self._lease.directory, self._why_gone))
        if self._state is PortState.CLOSED:
            raise ClosedError("the client is closed")

    def _wake(self) -> None:
        with self._lock:
            if self._wake_fd >= 0:  # else the thread has ended
                os.eventfd_write(self._wake_fd, 1)

    # ---- the port's own thread -------------------------------------------------------------------

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        dealer: zmq.Socket[bytes] | None = self._open_dealer()
        try:
            while dealer is not None:
                self._serve(dealer)
                dealer.close()
                dealer = self._come_back()
        except Exception as error:  # an unexpected error must not leave callers waiting
            self._why_gone = f"the connection failed: {error!r}"
            self._fail_pending(DaemonGone(f"the connection to the daemon failed: {error}"))
        finally:
            if dealer is not None:
                dealer.close()
            self._end()

    def _open_dealer(self) -> zmq.Socket[bytes]:
        dealer = self._context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.connect(f"ipc://{self._lease.directory}/control.sock")
        return dealer

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

    # ---- a new daemon ----------------------------------------------------------------------------

    def _come_back(self) -> zmq.Socket[bytes] | None:
        """Wait for a new daemon after the hang-up; None if none came, or on close."""
        deadline = time.monotonic() + self._reattach_s
        with self._lock:
            if self._state is not PortState.OPEN or self._reattach_s <= 0:
                return None
            self._state = PortState.AWAY
        self._lease_socket.close()
        listener = self._heard_by()
        if listener is not None:
            listener.on_away()
        poller = zmq.Poller()
        poller.register(self._wake_fd, zmq.POLLIN)
        while self._state is PortState.AWAY and time.monotonic() < deadline:
            dealer = self._attempt()
            if dealer is not None:
                return dealer
            if poller.poll(_RETRY_MS):
                _drain_eventfd(self._wake_fd)
        with self._lock:
            if self._state is PortState.AWAY:
                last = f"; last try: {self._refusal}" if self._refusal else ""
                within = f"{self._reattach_s:g} s{last}"
                self._why_gone = f"no daemon took this client back within {within}"
                self._state = PortState.OPEN    # _end changes the state to GONE
        return None

    def _attempt(self) -> zmq.Socket[bytes] | None:
        """Try once to become a client of a new daemon. The old token proves the identity. A daemon
        that adopted this client grants the same token again, any other a new one."""
        directory = self._lease.directory
        request = attrs.evolve(
            self._request, client_id=self._lease.client_id, token=self._token
        )
        fds: list[int] = []
        connection: socket.socket | None = None
        dealer = self._open_dealer()
        try:
            connection = connect_lease(directory, _ATTEMPT_S)
            grant, fds = exchange_lease(connection, request, directory)
            self._exchange(dealer, control.Hello(token=grant.token), control.Done)
            kept: set[int] = set()
            same = grant.token == self._token   # ids begin again in a new directory
            if same:
                resume = control.Resume(registration_ids=sorted(self._known))
                kept.update(self._exchange(dealer, resume, control.Resumed).registration_ids)
        except (PenstockError, zmq.ZMQError, control.ControlError) as error:
            self._refusal = str(error)
            dealer.close()
            if connection is not None:
                connection.close()
            for fd in fds:
                close_fd(fd)
            return None
        self._lease_socket, self._token = connection, grant.token
        self._resume(_lease_of(directory, grant, fds), kept, same=same)
        return dealer

    def _exchange(self, dealer: zmq.Socket[bytes], request: Any, expected: type[_T]) -> _T:
        """Exchange messages on the port's own thread."""
        with self._lock:
            correlation = self._next_correlation
            self._next_correlation += 1
        dealer.send(codec.encode(request, correlation))
        deadline = time.monotonic() + _ATTEMPT_S
        while dealer.poll(max(0, int((deadline - time.monotonic()) * 1000))):
            answered, message = codec.decode(dealer.recv())
            if answered == 0:
                self._take_notice(message)
            elif answered == correlation and isinstance(message, expected):
                return message
            elif answered == correlation:
                break
        raise DaemonGone(f"no good answer to {type(request).__name__}")

    def _resume(self, lease: Lease, kept: set[int], *, same: bool) -> None:
        """Continue after a new lease: repeat requests in progress, and report lost
        registrations."""
        lost = frozenset(self._known - kept)
        self._known &= kept
        with self._lock:
            if self._state is not PortState.AWAY:
                core.close_fds(*lease.descriptors)
                return
            self._lease = lease
            if not same:
                self._notices.clear()   # another directory: its ids are unrelated to the old ones
            self._outbox.clear()
            for correlation, pending in sorted(self._pending.items()):
                if same or isinstance(pending.request, _ADDITIONS):
                    pending.repeated = True
                    self._outbox.append((correlation, pending.request))
                else:
                    del self._pending[correlation]
                    pending.finish(_moot(pending.request))
            for request in self._late:
                if request.registration_id in self._known:
                    self._known.discard(request.registration_id)
                    self._outbox.append((self._next_correlation, request))
                    self._next_correlation += 1
            self._late.clear()
            self._state = PortState.OPEN
        self._wake()
        listener = self._heard_by()
        if listener is not None:
            listener.on_back(lease, lost, same)
        else:
            core.close_fds(*lease.descriptors)

    def _heard_by(self) -> Listener | None:
        return self._listener() if self._listener is not None else None

    # ---- exchanges -------------------------------------------------------------------------------

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
        elif isinstance(message, _IMAGE_NOTICES):
            registration = message.subscription_id
        else:
            if isinstance(message, control.DaemonStopping) and message.drain:
                self._leave()
            return  # otherwise the hang-up of the lease follows
        with self._lock:
            queue = self._notices.get(registration)
            if queue is None:
                return  # removed meanwhile
            queue.append(message)
        listener = self._heard_by()
        if listener is not None:
            listener.on_notice()

    def _leave(self) -> None:
        """Leave, because the daemon ends all streams: refuse further offers, then close the
        lease."""
        listener = self._heard_by()
        if listener is not None and self._reattach_s > 0:
            listener.on_away()
        elif listener is not None:
            listener.on_gone()
        with contextlib.suppress(OSError):
            self._lease_socket.shutdown(socket.SHUT_RDWR)

    def _take_reply(self, correlation: int, message: Any) -> None:
        if isinstance(message, (control.SubscriptionReady, control.PublicationReady)):
            with self._lock:
                self._notices.setdefault(message.registration_id, deque())
        outcome = refusal(message) if isinstance(message, control.Failure) else message
        with self._lock:
            pending = self._pending.get(correlation)
        if pending is not None:
            self._account(pending.request, message)
            if pending.repeated and _was_done_before(pending.request, message):
                outcome = control.Done()
        if not self._settle(correlation, outcome):
            self._undo(message)

    def _account(self, request: Any, message: Any) -> None:
        """Maintain the list of registrations at the daemon."""
        if isinstance(message, _READY):
            self._known.add(message.registration_id)
        elif isinstance(request, _REMOVALS):
            self._known.discard(request.registration_id)

    def _settle(self, correlation: int, outcome: Any) -> bool:
        with self._lock:
            pending = self._pending.pop(correlation, None)
            if pending is not None:
                pending.finish(outcome)
        return pending is not None

    def _undo(self, message: Any) -> None:
        """Remove a registration whose reply arrived after its caller's time-out."""
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
        for pending in waiting:  # one exception for each: a raised exception carries its traceback
            pending.finish(type(error)(*error.args))

    def _end(self) -> None:
        """End all waits for replies that can no longer arrive. Last act of the thread."""
        with self._lock:
            gone = self._state in (PortState.OPEN, PortState.AWAY)
            if gone:
                self._state = PortState.GONE
        where = self._lease.directory
        self._fail_pending(DaemonGone(gone_text(where, self._why_gone)) if gone
                           else ClosedError("the client is closed"))
        listener = self._heard_by()
        if gone and listener is not None:
            listener.on_gone()
        self._lease_socket.close()
        with self._lock:
            os.close(self._wake_fd)
            self._wake_fd = -1
        self._context.term()


_ADDITIONS: Final = (
    control.AddPublication, control.AddSubscription, control.AddCounter, control.GetStatus,
)  # fmt: skip
_REMOVALS: Final = (control.RemovePublication, control.RemoveSubscription, control.RemoveCounter)
_READY: Final = (control.PublicationReady, control.SubscriptionReady, control.CounterReady)
_IMAGE_NOTICES: Final = (
    control.ImageAvailable, control.ImageUnavailable, control.SubscriptionResumed,
)  # fmt: skip


def _lease_of(directory: Path, grant: control.LeaseGrant, fds: list[int]) -> Lease:
    return Lease(
        directory=directory,
        client_id=grant.client_id,
        client_slot=grant.client_slot,
        daemon_id=grant.daemon_id,
        daemon_epoch=grant.daemon_epoch,
        daemon_version=grant.daemon_version,
        sender_wake_fd=fds[0],
        receiver_wake_fd=fds[1],
        watch_fd=fds[2] if len(fds) > 2 else -1,
    )


def _was_done_before(request: Any, message: Any) -> bool:
    """Return whether the dead daemon had done a removal without a reply."""
    return (
        isinstance(request, (*_REMOVALS, control.RemoveDestination))
        and isinstance(message, control.Failure)
        and message.code == "unknown_registration"
    )


def _moot(request: Any) -> Any:
    """Return the result of a request whose daemon has gone with all its objects."""
    if isinstance(request, _REMOVALS):
        return control.Done()
    return DaemonGone("the daemon was replaced by one that knows nothing of this: request again")


# ---- descriptors ---------------------------------------------------------------------------------


def _drain_eventfd(fd: int) -> None:
    try:
        os.eventfd_read(fd)
    except BlockingIOError:
        return

