# SPDX-License-Identifier: Apache-2.0
"""The driver port against a scripted daemon on real sockets."""

from __future__ import annotations

import array
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from penstock.client._port import PortState
from penstock.client._zmq_port import ZmqPort
from penstock.config.protocol import codec, control
from penstock.core import errors

TOKEN = b"token"
_STOP = b"stop"


class ScriptedDaemon:
    """Grants one lease, says Done to Hello; ``answers`` has the reply of everything else."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.grant: Any = control.LeaseGrant(
            client_id=5, client_slot=1, token=TOKEN, daemon_id=1, daemon_epoch=2,
            daemon_version="0.1.0",
        )
        self.fds = 2
        self.answers: dict[type[Any], list[Any]] = {}
        self.heard: list[Any] = []
        self.requests_seen = threading.Semaphore(0)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(directory / "lease.sock"))
        self._listener.listen()
        self._context = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.bind(f"ipc://{directory}/control.sock")
        self._lease: socket.socket | None = None
        self._peer = b""
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._grant, self._serve)
        ]
        for thread in self._threads:
            thread.start()

    def _grant(self) -> None:
        try:
            self._lease, _ = self._listener.accept()
        except OSError:
            return
        self.heard.append(codec.decode(self._lease.recv(65536))[1])
        if self.grant is None:
            self._lease.close()
            return
        fds = [os.eventfd(0) for _ in range(self.fds)]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        data = self.grant if isinstance(self.grant, bytes) else codec.encode(self.grant, 1)
        self._lease.sendmsg([data], rights)
        for fd in fds:
            os.close(fd)

    def _serve(self) -> None:
        while True:
            self._peer, frame = self._router.recv_multipart()
            if frame == _STOP:
                return
            correlation, message = codec.decode(frame)
            self.heard.append(message)
            replies = (
                [control.Done()]
                if isinstance(message, control.Hello)
                else self.answers.get(type(message), [])
            )
            for reply in replies:
                notice = isinstance(reply, (control.ImageAvailable, control.ImageUnavailable))
                raw = (
                    reply
                    if isinstance(reply, bytes)
                    else codec.encode(reply, 0 if notice else correlation)
                )
                self._router.send_multipart([self._peer, raw])
            self.requests_seen.release()

    def hang_up(self) -> None:
        assert self._lease is not None
        self._lease.shutdown(socket.SHUT_RDWR)
        self._lease.close()

    def stop(self) -> None:
        with self._context.socket(zmq.DEALER) as dealer:
            dealer.connect(f"ipc://{self.directory}/control.sock")
            dealer.send(_STOP)
            self._threads[1].join()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        if self._lease is not None:
            self._lease.close()
        self._router.close()
        self._context.term()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ScriptedDaemon]:
    made = ScriptedDaemon(tmp_path)
    yield made
    made.stop()


def connect(daemon: ScriptedDaemon, timeout_s: float = 10.0) -> ZmqPort:
    return ZmqPort(daemon.directory, name="test", library_version="1", timeout_s=timeout_s)


def close(port: ZmqPort) -> None:
    port.close()
    for fd in (port.lease.sender_wake_fd, port.lease.receiver_wake_fd):
        os.close(fd)


def _subscription(registration: int) -> control.SubscriptionReady:
    return control.SubscriptionReady(
        registration_id=registration, stream_id=1, channel_status_id=-1
    )


def _gone(registration: int) -> control.ImageUnavailable:
    return control.ImageUnavailable(
        subscription_id=registration, correlation_id=9, stream_id=1, reason="closed"
    )


def test_the_lease_brings_descriptors_that_close_on_exec(daemon: ScriptedDaemon) -> None:
    port = connect(daemon)
    lease = port.lease
    assert (lease.client_id, lease.client_slot, lease.daemon_epoch) == (5, 1, 2)
    assert not os.get_inheritable(lease.sender_wake_fd)
    assert not os.get_inheritable(lease.receiver_wake_fd)
    assert daemon.heard == [
        control.LeaseRequest(name="test", library_version="1"), control.Hello(token=TOKEN)
    ]
    close(port)
    assert port.state is PortState.CLOSED


def test_a_port_says_that_no_daemon_runs(tmp_path: Path) -> None:
    with pytest.raises(errors.DaemonNotRunning, match="penstock up --dir"):
        ZmqPort(tmp_path, name="", library_version="", timeout_s=1)


@pytest.mark.parametrize(
    ("grant", "fds", "expected"),
    [
        (None, 2, errors.DaemonGone),
        (b"\x93garbage", 2, errors.VersionMismatch),
        (control.Done(), 2, errors.VersionMismatch),
        ("as is", 0, errors.VersionMismatch),
        ("as is", 1, errors.VersionMismatch),
        (control.Failure(code="limit", message="too many clients"), 0, errors.ChannelRefused),
    ],
)
def test_a_bad_grant_is_a_clear_error(
    daemon: ScriptedDaemon, grant: Any, fds: int, expected: type[Exception]
) -> None:
    if grant != "as is":
        daemon.grant = grant
    daemon.fds = fds
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(expected):
        connect(daemon)
    daemon._threads[0].join()  # it has closed its copies
    assert len(os.listdir("/proc/self/fd")) <= before + 1  # the daemon's end of the lease


def test_refusals_are_typed(daemon: ScriptedDaemon) -> None:
    port = connect(daemon)
    request = control.AddSubscription(channel="aeron:ipc", stream_id=1)
    for failure, expected in (
        (control.Failure(code="storage", message="needs 5, has 4"), errors.StorageError),
        (control.Failure(code="invalid_channel", message="no"), errors.ChannelRefused),
        (control.Failure(code="not_leased", message="no lease"), errors.DaemonGone),
        (control.Done(), errors.VersionMismatch),
    ):
        daemon.answers[control.AddSubscription] = [failure]
        with pytest.raises(expected):
            port.add_subscription(request, 10)
    close(port)


def test_notices_that_follow_an_answer_are_not_lost(daemon: ScriptedDaemon) -> None:
    port = connect(daemon)
    daemon.answers[control.AddSubscription] = [_subscription(70), _gone(70), _gone(71)]
    port.add_subscription(control.AddSubscription(channel="aeron:ipc", stream_id=1), 10)
    daemon.answers[control.RemoveCounter] = [control.Done()]
    port.perform(control.RemoveCounter(registration_id=1), 10)  # orders us behind the notices
    assert list(port.notices(70)) == [_gone(70)]
    assert list(port.notices(71)) == []
    close(port)


def test_an_answer_that_comes_too_late_is_undone(daemon: ScriptedDaemon) -> None:
    port = connect(daemon)
    with pytest.raises(errors.TimeoutExpired, match="AddCounter within 0"):
        port.add_counter(control.AddCounter(type_id=1001, label="x"), 0)
    for _ in range(2):
        assert daemon.requests_seen.acquire(timeout=10)  # Hello, AddCounter
    late = codec.encode(control.CounterReady(registration_id=8, counter_id=1), 2)
    daemon._router.send_multipart([daemon._peer, late])
    assert daemon.requests_seen.acquire(timeout=10)
    assert daemon.heard[-1] == control.RemoveCounter(registration_id=8)
    close(port)


def test_a_hang_up_ends_every_request(daemon: ScriptedDaemon) -> None:
    port = connect(daemon)
    heard = threading.Event()

    class Listener:
        def on_notice(self) -> None: ...

        def on_gone(self) -> None:
            heard.set()

    listener = Listener()
    port.listen(listener)
    threading.Thread(target=daemon.hang_up).start()
    with pytest.raises(errors.DaemonGone):
        port.status(30)
    assert heard.wait(10)
    assert port.state is PortState.GONE
    with pytest.raises(errors.DaemonGone):
        port.perform(control.RemoveCounter(registration_id=1), 10)
    close(port)
    with pytest.raises(errors.ClosedError):
        port.status(1)


def test_nonsense_from_the_daemon_is_an_error_and_not_a_hang(daemon: ScriptedDaemon) -> None:
    port = connect(daemon)
    daemon.answers[control.GetStatus] = [b"nonsense"]
    with pytest.raises(errors.VersionMismatch, match="cannot understand"):
        port.status(30)
    close(port)
