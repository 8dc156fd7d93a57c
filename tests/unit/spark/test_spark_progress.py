# SPDX-License-Identifier: Apache-2.0
"""Figures of a query's progress: lag, remaining window, and for how long it held its senders."""

from __future__ import annotations

from typing import Any

from penstock.client import GroupState, LogRange
from penstock.spark_bridge._offsets import Session
from penstock.spark_bridge._planner import View, Want
from penstock.spark_bridge._progress import Progress


def session(number: int) -> Session:
    return Session(channel="aeron:ipc", stream_id=7, session_id=number, initial_term_id=0)


def view(*ends: int, committed: int = 0, **fields: Any) -> View:
    return View.of([(0, state("q", *ends, committed=committed, **fields))])


def state(name: str, *ends: int, committed: int = 0, **fields: Any) -> GroupState:
    logs = [
        LogRange(**{
            "log_id": number + 1, "channel": "aeron:ipc", "stream_id": 7, "session_id": number,
            "initial_term_id": 0, "term_length": 65536, "mtu": 1408, "log_path": "",
            "retained_from": 0, "committed": committed, "end_position": end, "ended": False,
            "window_bytes": 65536, "time_index": [], **fields,
        }) for number, end in enumerate(ends)
    ]
    return GroupState(
        name=name, channel="aeron:ipc", stream_id=7, group_id=5, daemon_id=1, daemon_epoch=1,
        host="h", expires_ns=1, warnings=[], unreliable=[], logs=logs,
    )


class Rig:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.counted: list[Want] = []
        self.groups: list[tuple[int, GroupState]] = []
        self.requests = 0
        self.progress = Progress(
            self._count, self._groups, name="q", clock=lambda: self.now_s
        )

    def _groups(self) -> list[tuple[int, GroupState]]:
        self.requests += 1
        return self.groups

    def _count(self, want: Want) -> int:
        self.counted.append(want)
        return want.max_bytes // 64

    def report(self, seen: View, *planned: int) -> dict[str, Any]:
        self.progress.look(seen)
        positions = {session(number): at for number, at in enumerate(planned)}
        return self.progress.report(seen, positions, {"lostBytes": 3})


def test_lag_is_told_in_bytes_and_messages_and_counted_once_a_second() -> None:
    rig = Rig()
    found = rig.report(view(6400, 640), 3200, 640)
    assert (found["lagBytes"], found["lagMessages"], found["lostBytes"]) == (3200, 50, 3)
    assert found["windowLeftBytes"] == 2 * 65536 - 7040
    assert list(found) == sorted(found)
    rig.now_s += 0.5
    assert rig.report(view(9600, 640), 3200, 640)["lagMessages"] == 50
    assert len(rig.counted) == 1
    rig.now_s += 0.6
    assert rig.report(view(9600, 640), 3200, 640)["lagMessages"] == 100
    rig.now_s += 0.1
    assert rig.report(view(9600, 640), 9600, 640)["lagMessages"] == 0


def test_the_time_without_window_is_stated_with_its_session() -> None:
    rig = Rig()
    assert rig.report(view(640, 65536), 640, 640)["heldMs"] == 0
    rig.now_s += 2.0
    found = rig.report(view(640, 65536), 640, 640)
    assert (found["heldMs"], found["heldSession"]) == (2000, str(session(1)))
    rig.report(view(640, 65536, committed=32768), 640, 640)
    rig.now_s += 5.0
    assert rig.report(view(640, 65536, committed=32768), 640, 640)["heldMs"] == 2000


def test_a_session_that_has_ended_holds_nobody() -> None:
    rig = Rig()
    rig.report(view(65536, ended=True), 0)
    rig.now_s += 2.0
    found = rig.report(view(65536, ended=True), 0)
    assert (found["heldMs"], found["heldSession"]) == (0, "")


def test_the_group_that_holds_a_sender_is_named_also_when_it_is_another_querys() -> None:
    rig = Rig()
    assert rig.report(view(640), 640)["culprit"] == ""
    rig.report(view(65536), 0)
    rig.now_s += 1.0
    assert rig.report(view(65536), 0)["culprit"] == "q on h"
    rig.groups = [(0, state("q", 131072, committed=131072)), (0, state("slow", 131072)),
                  (1, state("elsewhere", 131072))]
    rig.now_s += 5.0
    ours = view(131072, committed=131072, window_bytes=131072)
    rig.report(ours, 131072)
    rig.now_s += 20.0
    found = rig.report(ours, 131072)
    assert (found["culprit"], found["heldMs"]) == ("slow on h", 26_000)


def test_other_groups_are_requested_seldom_and_not_while_the_query_itself_holds() -> None:
    rig = Rig()
    for _ in range(101):
        rig.report(view(640), 640)
        rig.now_s += 0.1
    assert rig.requests in (2, 3)
    rig = Rig()
    rig.report(view(65536), 0)
    assert rig.requests == 0
