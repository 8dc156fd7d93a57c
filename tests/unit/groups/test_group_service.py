# SPDX-License-Identifier: Apache-2.0
"""The service of groups with its own sockets and thread, and a client of it."""

from __future__ import annotations

import gc
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import zmq
from test_group_log import INITIAL, make, write

from penstock.client import GroupControl
from penstock.config.protocol import codec
from penstock.config.protocol.control import Failure, ListGroups
from penstock.config.settings.models import ControlTcpConfig, DaemonConfig, DirectoryConfig
from penstock.core.errors import ClosedError, InvalidArgument
from penstock.daemon.conductor.sagas.retention import Locate, Located
from penstock.daemon.directory import claim_directory
from penstock.daemon.groups.fetches import FetchServer
from penstock.daemon.groups.service import GroupService
from penstock.daemon.run import run_daemon

FRAMES = 40


class Service:
    """The service of a directory with one log; the conductor's answers come at once."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "d"
        self._log = make(folder, image=True)
        self.end = 0
        for _ in range(FRAMES):
            self.end = write(self._log, self.end, 1024)
        self.given_up = threading.Event()
        self.requested = threading.Event()
        self.waiting = 0
        self.deaf = 0                   # how many questions it does not answer
        self._claimed = claim_directory(DirectoryConfig(path=str(self.path)))
        self._service = GroupService(
            self._claimed, ControlTcpConfig(), request=self._request, floor=lambda log_id: 0,
            failed=lambda error: None,
        )
        self._service.start()

    def _request(self, number: int, message: Any) -> None:
        if not isinstance(message, Locate):
            self.waiting += 1
            self.requested.set()            # and never answers
            return
        if self.deaf > 0:
            self.deaf -= 1
            return
        self._service.answer(number, Located(path=str(self._log), lowest=0, end=self.end))

    def close(self) -> None:
        self._service.close()
        self._claimed.release()


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr("penstock.daemon.groups.fetches.FETCH_PIECE_BYTES", 1024)  # one frame each
    monkeypatch.setattr("penstock.daemon.groups.fetches._PATIENCE_NS", 1)
    made = Service(tmp_path)
    monkeypatch.setattr(FetchServer, "_fail", _notified(FetchServer._fail, made.given_up))
    yield made
    made.close()


def _notified(fail: Any, event: threading.Event) -> Any:
    def failing(fetch_server: FetchServer, *values: Any) -> None:
        fail(fetch_server, *values)
        event.set()

    return failing


def test_a_fetch_that_was_given_up_goes_on_where_it_was(service: Service) -> None:
    with GroupControl(directory=str(service.path)) as control:
        pieces = control.fetch(
            log_id=1, session_id=5, initial_term_id=INITIAL, start=0, end=service.end
        )
        found = [next(pieces)]
        assert service.given_up.wait(30)
        found += pieces
    assert [len(piece) for piece in found] == [1024] * FRAMES
    offsets = [int.from_bytes(piece[8:12], "little") for piece in found]
    assert offsets == [1024 * n for n in range(FRAMES)]


def test_a_request_that_is_not_answered_is_repeated(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client._group_port._ATTEMPT_S", 0.1)
    service.deaf = 2
    with GroupControl(directory=str(service.path), timeout_s=60) as control:
        cuts = control.cut(log_id=1, session_id=5, initial_term_id=INITIAL, start=0, max_bytes=4096)
    assert cuts.positions == [4096]
    assert service.deaf == 0


def test_a_connection_has_32_requests_that_wait(service: Service) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as flood:
        flood.setsockopt(zmq.LINGER, 0)
        flood.connect(f"ipc://{service.path}/groups.sock")
        for number in range(1, 41):
            flood.send(codec.encode(ListGroups(), number))
        refused = []
        for _ in range(8):
            assert flood.poll(30_000)
            number, answer = codec.decode(flood.recv())
            assert isinstance(answer, Failure)
            refused.append((number, answer.code))
        assert refused == [(number, "limit") for number in range(33, 41)]
        assert service.waiting == 32
        assert not flood.poll(0)


def test_a_request_that_cannot_be_sent_is_an_argument_that_is_wrong(service: Service) -> None:
    with GroupControl(directory=str(service.path)) as control:
        with pytest.raises(InvalidArgument, match=r"AcknowledgeGroup: message of .* at most 65536"):
            control.acknowledge(
                name="q", channel="aeron:ipc", stream_id=1,
                positions={(n, n): 32 for n in range(20_000)},
            )
        with pytest.raises(InvalidArgument, match=r"OpenGroup: .*surrogates"):
            control.open(name="\ud800", channel="aeron:ipc", stream_id=1, expiry_ns=1)


def in_child(work: Callable[[], object]) -> int:
    """Exit status of a forked child that does the work: 0 it was done, 1 it raised."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_fork_while_a_thread_takes_a_connection_does_not_hold_up_the_child(
    service: Service
) -> None:
    with GroupControl(directory=str(service.path)) as control:
        whole = {"log_id": 1, "session_id": 5, "initial_term_id": INITIAL, "start": 0,
                 "end": service.end}
        assert sum(map(len, control.fetch(**whole))) == service.end
        with control._port._lock:
            assert in_child(lambda: list(control.fetch(**whole))) == 0
        assert sum(map(len, control.fetch(**whole))) == service.end


def test_a_fetch_belongs_to_the_process_that_began_it(service: Service) -> None:
    with GroupControl(directory=str(service.path)) as control:
        whole = {"log_id": 1, "session_id": 5, "initial_term_id": INITIAL, "start": 0,
                 "end": service.end}
        pieces = control.fetch(**whole)
        length = len(next(pieces))

        def go_on() -> None:
            with pytest.raises(ClosedError, match="the parent process began"):
                next(pieces)
            assert sum(map(len, control.fetch(**whole))) == service.end

        assert in_child(go_on) == 0
        assert length + sum(map(len, pieces)) == service.end


def test_whoever_waits_for_an_answer_hears_that_the_control_was_closed(service: Service) -> None:
    control = GroupControl(directory=str(service.path), timeout_s=60)
    heard: list[type[BaseException]] = []

    def request() -> None:
        try:
            control.groups()
        except BaseException as error:
            heard.append(type(error))

    waiting = threading.Thread(target=request)
    waiting.start()
    assert service.requested.wait(30)
    control.close()
    waiting.join(30)
    assert heard == [ClosedError]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_collector_frees_a_control_that_was_not_closed(service: Service) -> None:
    """Otherwise the context of a cycle waits for sockets of the same cycle, for ever."""

    def drop() -> None:
        control: Any = GroupControl(directory=str(service.path))
        control._port._put(control._port._take())       # an idle connection
        control.itself = control
        del control
        gc.collect()

    dropping = threading.Thread(target=drop, daemon=True)
    dropping.start()
    dropping.join(30)
    assert not dropping.is_alive()


def test_a_service_that_fails_ends_the_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(fetch_server: FetchServer) -> bool:
        raise ZeroDivisionError("a mistake of ours")

    monkeypatch.setattr(FetchServer, "step", step)
    config = DaemonConfig(directory=DirectoryConfig(path=str(tmp_path / "d")))

    async def serve() -> None:
        with trio.fail_after(30):
            await run_daemon(config)

    with pytest.raises(BaseExceptionGroup) as failure:
        trio.run(serve)
    assert failure.value.subgroup(ZeroDivisionError) is not None
    assert (tmp_path / "d" / "registry.journal").exists()   # for a new daemon
