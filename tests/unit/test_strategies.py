# SPDX-License-Identifier: Apache-2.0
"""Strategies in Python: how they are found, and how the daemon lives with bad ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.config import uri
from penstock.config.models import StreamRule
from penstock.core.driver_types import FlowControl, ReceiverView
from penstock.core.errors import ChannelRefused
from penstock.daemon.conductor import custom, rules
from penstock.daemon.conductor.actions import (
    LogError,
    ReadReceivers,
    RunStrategy,
    SetPublicationLimit,
)
from penstock.daemon.conductor.machines import PublicationState
from penstock.daemon.conductor.saga import Refused
from penstock.daemon.conductor.settings import ConductorSettings
from penstock.daemon.conductor.timers import Timers
from penstock.daemon.strategies import StrategyHost, find

VIEW = ReceiverView(receiver_id=1, heard_ns=5, position=4096, window=1024)


class Good:
    def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int:
        return min(view.position + view.window for view in snapshots)


class Raises(Good):
    def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int:
        raise RuntimeError("mine")


class Nonsense(Good):
    answer: object = None

    def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int:
        return self.answer  # type: ignore[return-value]


class CannotBeMade(Good):
    def __init__(self) -> None:
        raise ValueError("no")


class NoStrategy:
    pass


def _name(found: type) -> str:
    sys.modules["strategies_under_test"] = sys.modules[__name__]
    return f"py:strategies_under_test:{found.__name__}"


def test_a_strategy_is_called_with_what_receivers_said() -> None:
    log: list[str] = []
    host = StrategyHost(log.append)
    host.open(7, _name(Good))
    assert host.run(7, (VIEW,), 10) == 5120
    assert log == []
    host.close(7)
    assert host.run(7, (VIEW,), 10) is None


def test_one_that_raises_is_logged_once_and_counted() -> None:
    log: list[str] = []
    host = StrategyHost(log.append)
    host.open(7, _name(Raises))
    assert [host.run(7, (VIEW,), n) for n in range(5)] == [None] * 5
    running = host.get(7)
    assert running is not None
    assert (running.calls, running.raised, running.nonsense) == (5, 5, 0)
    assert len(log) == 1
    assert "mine" in log[0]


@pytest.mark.parametrize("answer", [None, -1, 2**63, 1.5, "far", True])
def test_nonsense_is_not_believed(answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    host = StrategyHost(log.append)
    monkeypatch.setattr(Nonsense, "answer", answer)
    host.open(7, _name(Nonsense))
    assert [host.run(7, (VIEW,), n) for n in range(3)] == [None] * 3
    assert len(log) == 1
    assert repr(answer) in log[0]


@pytest.mark.parametrize("name", [
    "py:nowhere_at_all:X", "py:nothing-of-that-name", "py:sys:path",
    _name(NoStrategy), _name(Good) + "x",
])
def test_what_is_no_strategy_is_refused_by_name(name: str) -> None:
    with pytest.raises(ChannelRefused) as caught:
        find(name)
    assert caught.value.code == "not_supported"
    assert name in str(caught.value)


def test_one_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(ChannelRefused, match="no"):
        StrategyHost(lambda text: None).open(1, _name(CannotBeMade))


# ---- the choice ----------------------------------------------------------------------------------

SETTINGS = ConductorSettings(directory="d", receiver_id_base=1, storage_budget_bytes=1)


def _choose(
    fc: str | None, *, group: bool = True, ipc: bool = False,
    settings: ConductorSettings = SETTINGS,
) -> rules.Choice:
    given = None if fc is None else uri.read_flow_control("fc", fc)
    return rules.choose(given, "channel", settings, group=group, ipc=ipc)


def test_defaults_follow_the_media() -> None:
    assert _choose(None).kind is FlowControl.MAX
    assert _choose(None, group=False).kind is FlowControl.UNICAST
    assert _choose(None, group=False, ipc=True).kind is FlowControl.UNICAST
    mine = ConductorSettings(
        directory="d", receiver_id_base=1, storage_budget_bytes=1, unicast_flow_control="nak",
        multicast_flow_control="min,t:1s",
    )
    assert _choose(None, settings=mine).kind is FlowControl.MIN
    assert _choose(None, settings=mine).receiver_timeout_ns == 10**9
    assert _choose(None, group=False, settings=mine).kind is FlowControl.NAK
    assert _choose("max", settings=mine).kind is FlowControl.MAX


def test_both_names_of_tagged() -> None:
    assert _choose("tagged,g:5/2").group_tag == 5
    assert _choose("tagged,g:5/2").group_min_size == 2
    assert _choose("preferred").kind is FlowControl.TAGGED
    assert _choose("preferred").group_tag == -1


@pytest.mark.parametrize(("fc", "group", "ipc"), [
    ("min", False, False), ("tagged", False, False), ("max", False, True), ("min", False, True),
    ("py:a:B", False, True), ("fastest", True, False),
])
def test_contradictions_are_refused(fc: str, group: bool, ipc: bool) -> None:
    with pytest.raises(Refused, match="fc="):
        _choose(fc, group=group, ipc=ipc)


def test_the_first_rule_that_matches_fills_in_what_the_channel_leaves_open() -> None:
    settings = ConductorSettings(
        directory="d", receiver_id_base=1, storage_budget_bytes=1, rules=(
            StreamRule(stream_id=5, flow_control="min"),
            StreamRule(channel="*endpoint=239.*", term_length_bytes=65536, rate="10m,500msg"),
            StreamRule(channel="*endpoint=239.*", flow_control="tagged,g:3",
                       window_bytes=131072, congestion_control="cubic",
                       receiver_window_bytes=262144),
        ),
    )
    group = uri.parse("aeron:udp?endpoint=239.0.0.1:1")

    def publication(channel: uri.ChannelUri, stream_id: int) -> uri.ChannelUri:
        return rules.apply(channel, stream_id, settings, publication=True)

    assert str(publication(group, 5).fc) == "min"
    found = publication(group, 6)
    assert (str(found.fc), found.pub_wnd, found.ps_rate) == ("tagged,g:3", 131072, None)
    small = publication(uri.parse("aeron:udp?endpoint=239.0.0.1:1|term-length=64k"), 6)
    assert small.fc is None
    assert small.ps_rate == uri.Rate(bytes_per_s=10 << 20, messages_per_s=500)
    own = publication(uri.parse("aeron:udp?endpoint=239.0.0.1:1|fc=max"), 6)
    assert (str(own.fc), own.pub_wnd) == ("max", 131072)
    assert publication(uri.parse("aeron:udp?endpoint=10.0.0.1:1"), 6).fc is None
    subscription = rules.apply(group, 6, settings, publication=False)
    assert (subscription.cc, subscription.rcv_wnd, subscription.fc) == ("cubic", 262144, None)


# ---- when the conductor asks ---------------------------------------------------------------------


class _World:
    """As much of a world as a step needs."""

    def __init__(self) -> None:
        self.now_ns = 1000
        self.emitted: list[object] = []
        self.timers = Timers()
        self.publications: dict[int, object] = {}

    def emit(self, action: object) -> None:
        self.emitted.append(action)


def _step(world: _World, publication: object, answer: int | None, took_ns: int) -> None:
    step: Any = custom._step(world, publication)  # type: ignore[arg-type]
    assert isinstance(next(step), ReadReceivers)
    assert isinstance(step.send((VIEW,)), RunStrategy)
    world.now_ns += took_ns
    with pytest.raises(StopIteration):
        step.send(answer)


def test_a_late_answer_is_dropped_logged_once_and_counted() -> None:
    world = _World()
    publication: Any = SimpleNamespace(
        id=3, late_limits=0, plan=SimpleNamespace(channel="c"),
        params=SimpleNamespace(strategy="py:x"), state=PublicationState.ACTIVE,
    )
    world.publications[3] = publication
    _step(world, publication, 5120, 1_000_000)
    assert world.emitted == [
        SetPublicationLimit(publication_id=3, limit=5120, until_ns=1000 + custom.VALID_NS)
    ]
    world.emitted.clear()
    for _ in range(3):
        _step(world, publication, 5120, custom.DEADLINE_NS + 1)
    assert publication.late_limits == 3
    assert [type(action) for action in world.emitted] == [LogError]
    world.emitted.clear()
    _step(world, publication, None, 0)              # it failed: the built-in applies
    assert world.emitted == []
    assert world.timers.next_deadline_ns() <= world.now_ns + custom.STEP_NS
