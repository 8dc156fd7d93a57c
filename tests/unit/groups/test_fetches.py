# SPDX-License-Identifier: Apache-2.0
"""The fetch server with a real log, in virtual time: limits of each connection and of all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_group_log import INITIAL, make, write

from penstock.config.protocol.control import (
    FETCH_PIECE_BYTES,
    CutLog,
    Done,
    Failure,
    Fetch,
    FetchPiece,
    FindMarks,
    LogCuts,
    LogMarks,
    Message,
)
from penstock.daemon.conductor.sagas.retention import Locate, Located
from penstock.daemon.groups.fetches import FetchServer, Peer

SECOND_NS = 10**9
FRAMES = 8


class Desk:
    """A fetch server, a log of some frames, and what readers were sent."""

    def __init__(self, folder: Path, *, limit_bytes: int = 64 * FETCH_PIECE_BYTES) -> None:
        self.now_ns = 0
        self.sent: list[tuple[Peer, Message, int]] = []
        self.requested: list[Locate] = []
        self.gone: set[Peer] = set()
        self._path = make(folder, image=True)
        self.end = 0
        for _ in range(FRAMES):
            self.end = write(self._path, self.end, 1024)
        self.fetch_server = FetchServer(
            send=self._send, locate=self._locate, floor=lambda log_id: 0, limit_bytes=limit_bytes,
            clock=lambda: self.now_ns,
        )

    def _send(self, peer: Peer, message: Message, correlation: int, data: bytes | None) -> bool:
        if peer in self.gone:
            return False
        self.sent.append((peer, message, correlation))
        return True

    def _locate(self, question: Locate) -> int:
        self.requested.append(question)
        return len(self.requested)

    def answer_all(self) -> None:
        for number in range(1, len(self.requested) + 1):
            self.fetch_server.located(number, Located(path=str(self._path), lowest=0, end=self.end))

    def fetch(self, peer: Peer, correlation: int, *, credit: int = 1) -> None:
        self.fetch_server.fetch(peer, correlation, Fetch(
            log_id=1, session_id=5, initial_term_id=INITIAL, start=0, end=self.end, credit=credit,
        ))

    def cut(self, peer: Peer, correlation: int) -> None:
        self.fetch_server.look(peer, correlation, CutLog(
            log_id=1, session_id=5, initial_term_id=INITIAL, start=0, max_bytes=4096,
        ))

    def of(self, kind: type[Any], peer: Peer) -> list[Any]:
        return [m for to, m, _ in self.sent if to == peer and isinstance(m, kind)]


@pytest.fixture
def fetch_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr("penstock.daemon.groups.fetches.FETCH_PIECE_BYTES", 1024)  # one frame each
    return Desk(tmp_path, limit_bytes=4 * 1024)


def peer(name: str) -> Peer:
    return Peer(router=None, identity=name.encode())


def flood_of(fetch_server: Desk, request: Callable[[Peer, int], None]) -> Peer:
    """Asks a hundred times at once, of which eight are taken."""
    flood = peer("flood")
    for n in range(1, 101):
        request(flood, n)
    assert len(fetch_server.requested) == 8
    assert [f.code for f in fetch_server.of(Failure, flood)] == ["limit"] * 92
    return flood


def test_a_connection_has_eight_fetches_though_they_come_at_once(fetch_server: Desk) -> None:
    flood, other = flood_of(fetch_server, fetch_server.fetch), peer("other")
    fetch_server.fetch(other, 1)
    assert len(fetch_server.requested) == 9
    fetch_server.answer_all()
    fetch_server.fetch(flood, 200)
    assert fetch_server.of(Failure, flood)[-1].code == "limit"
    assert "8 fetches of this connection" in fetch_server.of(Failure, flood)[-1].message


def test_a_connection_has_eight_cuts_that_wait(fetch_server: Desk) -> None:
    flood, other = flood_of(fetch_server, fetch_server.cut), peer("other")
    fetch_server.cut(other, 1)
    fetch_server.answer_all()
    assert len(fetch_server.of(LogCuts, other)) == 1
    fetch_server.cut(flood, 200)
    assert len(fetch_server.requested) == 10


def test_marks_come_with_their_places_as_many_as_an_answer_holds(
    fetch_server: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All frames of the log have the reserved value 0."""
    monkeypatch.setattr("penstock.daemon.groups.fetches.MAX_MARKS_BYTES", 3000)
    asked = peer("asked")
    begins, at = [], 0
    for number in range(1, 20):
        fetch_server.fetch_server.look(asked, number, FindMarks(
            log_id=1, session_id=5, initial_term_id=INITIAL, start=at, reserved_value=0,
        ))
        fetch_server.answer_all()
        answer = fetch_server.of(LogMarks, asked)[-1]
        assert len(answer.data) == sum(answer.sizes) <= 3000
        begins += answer.begins
        if answer.position == at:
            break
        assert answer.position == answer.ends[-1]
        at = answer.position
    assert begins == list(range(0, FRAMES * 1024, 1024))
    assert at == fetch_server.end


def test_what_is_under_way_to_all_is_bounded_and_comes_back_with_credit(fetch_server: Desk) -> None:
    first, second = peer("first"), peer("second")
    fetch_server.fetch(first, 1, credit=4)
    fetch_server.fetch(second, 1, credit=4)
    fetch_server.answer_all()
    while fetch_server.fetch_server.step():
        pass
    assert len(fetch_server.of(FetchPiece, first)) + len(fetch_server.of(FetchPiece, second)) == 4
    fetch_server.fetch_server.credit(first, 1, 100)         # no more than was sent to it
    while fetch_server.fetch_server.step():
        pass
    assert len(fetch_server.of(FetchPiece, first)) + len(fetch_server.of(FetchPiece, second)) == 6


def test_a_reader_that_takes_nothing_for_a_minute_is_told_and_frees_the_others(
    fetch_server: Desk
) -> None:
    lazy, other = peer("lazy"), peer("other")
    fetch_server.fetch(lazy, 1, credit=4)
    fetch_server.answer_all()
    while fetch_server.fetch_server.step():
        pass
    fetch_server.fetch(other, 1, credit=1)
    fetch_server.answer_all()
    fetch_server.now_ns = 59 * SECOND_NS
    fetch_server.fetch_server.step()
    assert not fetch_server.of(Failure, lazy)
    assert not fetch_server.of(FetchPiece, other)
    fetch_server.now_ns = 61 * SECOND_NS
    fetch_server.fetch_server.step()
    [notified] = fetch_server.of(Failure, lazy)
    assert notified.code == "stalled"
    assert "position 4096" in notified.message
    assert len(fetch_server.of(FetchPiece, other)) == 1
    fetch_server.now_ns = 63 * SECOND_NS            # its minute begins with its first piece
    fetch_server.fetch_server.step()
    assert not fetch_server.of(Failure, other)


def test_a_reader_that_has_gone_is_found_out_by_a_question(fetch_server: Desk) -> None:
    dead, other = peer("dead"), peer("other")
    fetch_server.fetch(dead, 1, credit=4)
    fetch_server.answer_all()
    while fetch_server.fetch_server.step():
        pass
    fetch_server.now_ns = 6 * SECOND_NS
    fetch_server.fetch_server.step()
    assert len(fetch_server.of(Done, dead)) == 1    # it is there
    fetch_server.gone.add(dead)
    fetch_server.fetch(other, 1, credit=1)
    fetch_server.answer_all()
    fetch_server.now_ns = 12 * SECOND_NS
    fetch_server.fetch_server.step()
    assert len(fetch_server.of(FetchPiece, other)) == 1
