# SPDX-License-Identifier: Apache-2.0
"""A conductor that is asked about consumer groups."""

from __future__ import annotations

import itertools
from typing import Any

from conductor_rig import SECOND_NS, Rig

from penstock.config.protocol import control
from penstock.core.group_log import join_times
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.actions.times import ViewTimes

UDP = "aeron:udp?endpoint=127.0.0.1:5001"
GROUP = "aeron:udp?endpoint=224.0.1.1:5001|interface=127.0.0.1"
EXPIRY_NS = 30 * SECOND_NS


class GroupRig(Rig):
    """Requests about groups, and logs whose ends are what a test says."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.ends: dict[int, int] = {}
        self.released: dict[int, int] = {}
        self._requests = itertools.count(1)

    def group(self, message: Any) -> Any:
        number = next(self._requests)
        self._run(self.conductor.on_group_request(number, message, self.now_ns))
        answers = [x for x in self.all(a.Answer) if x.request_id == number]
        assert len(answers) == 1, answers
        return answers[0].message

    def open(self, channel: str = UDP, name: str = "query", **options: Any) -> Any:
        values = {"stream_id": 7, "expiry_ns": EXPIRY_NS, **options}
        return self.group(control.OpenGroup(name=name, channel=channel, **values))

    def get(self, **options: Any) -> Any:
        return self.group(
            control.GetGroup(name="query", channel=UDP, stream_id=7, **options)
        )

    def logs(self, channel: str = UDP, name: str = "query") -> list[dict[str, Any]]:
        answer = self.group(control.GetGroup(name=name, channel=channel, stream_id=7))
        found: list[dict[str, Any]] = answer.group["logs"]
        return found

    def acknowledge(self, position: int, channel: str = UDP, **options: Any) -> Any:
        values: dict[str, Any] = {"session_id": 42, "initial_term_id": 3, **options}
        return self.group(
            control.AcknowledgeGroup(
                name="query", channel=channel, stream_id=7, sessions=[values["session_id"]],
                initial_term_ids=[values["initial_term_id"]], positions=[position],
                owner=values.get("owner", ""),
            )
        )

    def endpoint(self) -> int:
        return next(iter(self.state.recv_endpoints))

    def image(self) -> int:
        return next(iter(self.state.images))

    def _perform_native(self, action: a.Action) -> Any:
        match action:
            case a.ViewLog(log_id=log_id, committed_counter_id=counter_id):
                if log_id not in self.ends:
                    return a.ActionError(code="unknown_registration", message="no such log")
                started = self.counters[counter_id].value
                end = self.ends[log_id]
                committed = self.released.get(counter_id, started)
                return a.LogView(committed=min(committed, end), end_position=end)
            case ViewTimes(known=known, most=most) if known:
                return tuple(join_times(known, most))
            case ViewTimes(start=start, end=end):
                return tuple((at, 10**9 * at) for at in range(start + 64, end + 64, 64))
            case a.ReleaseTo(position_counter_id=counter_id, position=position):
                self.released[counter_id] = max(position, self.released.get(counter_id, 0))
            case a.SetCounter(counter_id=counter_id, value=value) if counter_id in self.counters:
                self.released[counter_id] = value
            case a.OldestPosition():
                return 512
            case _:
                return super()._perform_native(action)
        return None
