# SPDX-License-Identifier: Apache-2.0
"""The fetch desk with a real log, in virtual time: limits of each connection and of all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_group_log import INITIAL, make, write

from penstock.config.control import (
    FETCH_PIECE_BYTES,
    CutLog,
    Done,
    Failure,
    Fetch,
    FetchPiece,
    LogCuts,
    Message,
)
from penstock.daemon.conductor.retention import Locate, Located
from penstock.daemon.fetches import FetchDesk, Peer

SECOND_NS = 10**9
FRAMES = 8


class Desk:
    """A fetch desk, a log of some frames, and what readers were sent."""

    def __init__(self, folder: Path, *, limit_bytes: int = 64 * FETCH_PIECE_BYTES) -> None:
        self.now_ns = 0
        self.sent: list[tuple[Peer, Message, int]] = []
        self.asked: list[Locate] = []
        self.gone: set[Peer] = set()
        self._path = make(folder, image=True)
        self.end = 0
        for _ in range(FRAMES):
            self.end = write(self._path, self.end, 1024)
        self.desk = FetchDesk(
            send=self._send, locate=self._locate, floor=lambda log_id: 0, limit_bytes=limit_bytes,
            clock=lambda: self.now_ns,
        )

    def _send(self, peer: Peer, message: Message, correlation: int, data: bytes | None) -> bool:
        if peer in self.gone:
            return False
        self.sent.append((peer, message, correlation))
        return True

    def _locate(self, question: Locate) -> int:
        self.asked.append(question)
        return len(self.asked)

    def answer_all(self) -> None:
        for number in range(1, len(self.asked) + 1):
            self.desk.located(number, Located(path=str(self._path), lowest=0, end=self.end))

    def fetch(self, peer: Peer, correlation: int, *, credit: int = 1) -> None:
        self.desk.fetch(peer, correlation, Fetch(
            log_id=1, session_id=5, initial_term_id=INITIAL, start=0, end=self.end, credit=credit,
        ))

    def cut(self, peer: Peer, correlation: int) -> None:
        self.desk.cut(peer, correlation, CutLog(
            log_id=1, session_id=5, initial_term_id=INITIAL, start=0, max_bytes=4096,
        ))

    def of(self, kind: type[Any], peer: Peer) -> list[Any]:
        return [m for to, m, _ in self.sent if to == peer and isinstance(m, kind)]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr("penstock.daemon.fetches.FETCH_PIECE_BYTES", 1024)  # one frame each
    return Desk(tmp_path, limit_bytes=4 * 1024)


def peer(name: str) -> Peer:
    return Peer(router=None, identity=name.encode())


def flood_of(desk: Desk, ask: Callable[[Peer, int], None]) -> Peer:
    """Asks a hundred times at once, of which eight are taken."""
    flood = peer("flood")
    for n in range(1, 101):
        ask(flood, n)
    assert len(desk.asked) == 8
    assert [f.code for f in desk.of(Failure, flood)] == ["limit"] * 92
    return flood


def test_a_connection_has_eight_fetches_though_they_come_at_once(desk: Desk) -> None:
    flood, other = flood_of(desk, desk.fetch), peer("other")
    desk.fetch(other, 1)
    assert len(desk.asked) == 9
    desk.answer_all()
    desk.fetch(flood, 200)
    assert desk.of(Failure, flood)[-1].code == "limit"
    assert "8 fetches of this connection" in desk.of(Failure, flood)[-1].message


def test_a_connection_has_eight_cuts_that_wait(desk: Desk) -> None:
    flood, other = flood_of(desk, desk.cut), peer("other")
    desk.cut(other, 1)
    desk.answer_all()
    assert len(desk.of(LogCuts, other)) == 1
    desk.cut(flood, 200)
    assert len(desk.asked) == 10


def test_what_is_under_way_to_all_is_bounded_and_comes_back_with_credit(desk: Desk) -> None:
    first, second = peer("first"), peer("second")
    desk.fetch(first, 1, credit=4)
    desk.fetch(second, 1, credit=4)
    desk.answer_all()
    while desk.desk.step():
        pass
    assert len(desk.of(FetchPiece, first)) + len(desk.of(FetchPiece, second)) == 4
    desk.desk.credit(first, 1, 100)         # no more than was sent to it
    while desk.desk.step():
        pass
    assert len(desk.of(FetchPiece, first)) + len(desk.of(FetchPiece, second)) == 6


def test_a_reader_that_takes_nothing_for_a_minute_is_told_and_frees_the_others(
    desk: Desk
) -> None:
    lazy, other = peer("lazy"), peer("other")
    desk.fetch(lazy, 1, credit=4)
    desk.answer_all()
    while desk.desk.step():
        pass
    desk.fetch(other, 1, credit=1)
    desk.answer_all()
    desk.now_ns = 59 * SECOND_NS
    desk.desk.step()
    assert not desk.of(Failure, lazy)
    assert not desk.of(FetchPiece, other)
    desk.now_ns = 61 * SECOND_NS
    desk.desk.step()
    [told] = desk.of(Failure, lazy)
    assert told.code == "stalled"
    assert "position 4096" in told.message
    assert len(desk.of(FetchPiece, other)) == 1
    desk.now_ns = 63 * SECOND_NS            # its minute begins with its first piece
    desk.desk.step()
    assert not desk.of(Failure, other)


def test_a_reader_that_has_gone_is_found_out_by_a_question(desk: Desk) -> None:
    dead, other = peer("dead"), peer("other")
    desk.fetch(dead, 1, credit=4)
    desk.answer_all()
    while desk.desk.step():
        pass
    desk.now_ns = 6 * SECOND_NS
    desk.desk.step()
    assert len(desk.of(Done, dead)) == 1    # it is there
    desk.gone.add(dead)
    desk.fetch(other, 1, credit=1)
    desk.answer_all()
    desk.now_ns = 12 * SECOND_NS
    desk.desk.step()
    assert len(desk.of(FetchPiece, other)) == 1
