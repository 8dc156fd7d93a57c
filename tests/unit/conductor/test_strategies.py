# SPDX-License-Identifier: Apache-2.0
"""Strategies in Python: how they are found, and how the daemon lives with bad ones."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from conductor_rig import Rig

from penstock.config import uri
from penstock.config.protocol.control import AddPublication
from penstock.config.settings.models import StreamRule
from penstock.core.driver_types import CongestionControl, FlowControl, ReceiverView, StrategyLate
from penstock.core.errors import ChannelRefused
from penstock.daemon.conductor.actions import (
    AddImageObject,
    AddPublicationObject,
    LogError,
    MakeStrategy,
    OpenRecvEndpoint,
    ReadReceivers,
    RunStrategy,
    SetPublicationLimit,
    StrategyAnswer,
)
from penstock.daemon.conductor.channel import rules
from penstock.daemon.conductor.saga import Refused
from penstock.daemon.conductor.sagas import custom
from penstock.daemon.conductor.settings import ConductorSettings
from penstock.daemon.conductor.state.machines import PublicationState
from penstock.daemon.conductor.state.timers import Timers
from penstock.daemon.strategies import MAX_ABANDONED, StrategyHost, find, make

GROUP = "aeron:udp?endpoint=239.0.0.1:4000|interface=127.0.0.1"
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


class Unspeakable(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no words")


class UnspeakableRaises(Good):
    def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int:
        raise Unspeakable


class Exits(Good):
    def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int:
        sys.exit(3)


class Interrupts(Good):
    def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int:
        raise KeyboardInterrupt


class ExitsWhenMade(Good):
    def __init__(self) -> None:
        sys.exit(3)


class UnspeakableWhenMade(Good):
    def __init__(self) -> None:
        raise Unspeakable


class _Refuses(type):
    def __getattr__(cls, name: str) -> object:
        raise SystemExit(3) if name == "on_status_messages" else AttributeError(name)


class RefusesToBeLookedAt(metaclass=_Refuses):
    pass


def _name(found: type) -> str:
    sys.modules["strategies_under_test"] = sys.modules[__name__]
    return f"py:strategies_under_test:{found.__name__}"


def _host(found: type) -> StrategyHost:
    host = StrategyHost()
    host.open(7, _name(found), make(_name(found)))
    return host


def test_a_strategy_is_called_with_what_receivers_said() -> None:
    host = _host(Good)
    assert host.run(7, (VIEW,), 10) == StrategyAnswer(limit=5120)
    host.close(7)
    assert host.run(7, (VIEW,), 10) == StrategyAnswer()


def test_an_adopted_publication_gets_its_strategy_at_the_first_call() -> None:
    host = StrategyHost()
    host.open(7, _name(Good), None)
    assert host.run(7, (VIEW,), 10) == StrategyAnswer(limit=5120)
    host.open(8, "py:nowhere_at_all:X", None)
    answers = [host.run(8, (VIEW,), n) for n in range(3)]
    assert "nowhere_at_all" in answers[0].complaint
    assert answers[1:] == [StrategyAnswer()] * 2


def test_one_that_raises_is_told_once_and_counted() -> None:
    host = _host(Raises)
    answers = [host.run(7, (VIEW,), n) for n in range(5)]
    assert [answer.limit for answer in answers] == [None] * 5
    running = host.get(7)
    assert running is not None
    assert (running.calls, running.raised, running.nonsense) == (5, 5, 0)
    assert "mine" in answers[0].complaint
    assert [answer.complaint for answer in answers[1:]] == [""] * 4


@pytest.mark.parametrize("found", [Exits, Interrupts, UnspeakableRaises])
def test_whatever_it_raises_is_contained(found: type) -> None:
    host = _host(found)
    answers = [host.run(7, (VIEW,), n) for n in range(2)]
    assert [answer.limit for answer in answers] == [None] * 2
    assert "raised" in answers[0].complaint
    running = host.get(7)
    assert running is not None
    assert running.raised == 2


def test_an_answer_that_cannot_be_shown_or_is_long_is_contained(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    for answer in (Unspeakable(), "x" * 10**6):
        monkeypatch.setattr(Nonsense, "answer", answer)
        complaint = _host(Nonsense).run(7, (VIEW,), 1).complaint
        assert "which is no position" in complaint
        assert len(complaint) < 500


@pytest.mark.parametrize("answer", [None, -1, 2**63, 1.5, "far", True])
def test_nonsense_is_not_believed(answer: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nonsense, "answer", answer)
    host = _host(Nonsense)
    answers = [host.run(7, (VIEW,), n) for n in range(3)]
    assert [answer.limit for answer in answers] == [None] * 3
    assert repr(answer) in answers[0].complaint
    assert answers[1].complaint == ""


def test_strategies_that_do_not_return_are_left_behind_but_not_without_end() -> None:
    host = StrategyHost()
    held = threading.Event()
    inside = threading.Semaphore(0)

    class Held(Good):
        def on_status_messages(self, snapshots: Sequence[ReceiverView], now_ns: int) -> int:
            inside.release()
            held.wait()
            return 5120

    threads = []
    for publication_id in range(MAX_ABANDONED):
        host.open(publication_id, "py:held", Held())
        threads.append(threading.Thread(target=host.run, args=(publication_id, (VIEW,), 1)))
        threads[-1].start()
        inside.acquire()
        host.close(publication_id)
    with pytest.raises(ChannelRefused, match="16 calls for closed streams"):
        host.open(99, "py:held", Held())
    held.set()
    for thread in threads:
        thread.join()
    host.open(99, "py:held", Held())                # they came back


@pytest.mark.parametrize("name", [
    "py:nowhere_at_all:X", "py:nothing-of-that-name", "py:sys:path",
    _name(NoStrategy), _name(Good) + "x", _name(RefusesToBeLookedAt),
])
def test_what_is_no_strategy_is_refused_by_name(name: str) -> None:
    with pytest.raises(ChannelRefused) as caught:
        find(name)
    assert caught.value.code == "not_supported"
    assert name in str(caught.value)


@pytest.mark.parametrize("found", [CannotBeMade, ExitsWhenMade, UnspeakableWhenMade])
def test_one_that_cannot_be_made_is_refused(found: type) -> None:
    with pytest.raises(ChannelRefused, match=f"{found.__name__}: cannot be made: "):
        make(_name(found))


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


def test_both_names_of_tagged_are_accepted() -> None:
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
    assert str(publication(uri.parse("aeron:udp?endpoint=239.0.0.1:1|mtu=4k"), 5).fc) == "min"
    subscription = rules.apply(group, 6, settings, publication=False)
    assert (str(subscription.cc), subscription.rcv_wnd) == ("cubic", 262144)
    assert subscription.fc is None


def test_rules_choose_by_channel_stream_session_and_term_length() -> None:
    settings = attrs.evolve(SETTINGS, rules=(
        StreamRule(channel="*endpoint=239.0.0.1:*", stream_id=1, flow_control="min"),
        StreamRule(session_id=77, flow_control="nak", congestion_control="cubic"),
        StreamRule(term_length_bytes=1 << 20, flow_control="tagged,g:1"),
    ))

    def found(channel: str, stream_id: int) -> str:
        parsed = uri.parse(f"aeron:udp?endpoint={channel}")
        return str(rules.apply(parsed, stream_id, settings, publication=True).fc)

    assert found("239.0.0.1:5", 1) == "min"
    assert found("239.0.0.1:5", 2) == "None"
    assert found("239.0.0.3:5", 1) == "None"
    assert found("239.0.0.1:5|session-id=77", 2) == "nak"
    assert found("239.0.0.1:5|session-id=78", 2) == "None"
    assert found("239.0.0.1:5|term-length=1m", 2) == "tagged,g:1"
    assert found("239.0.0.1:5|term-length=1m|fc=max", 2) == "max"
    session = uri.parse("aeron:udp?endpoint=10.0.0.1:5|session-id=77")
    assert str(rules.apply(session, 2, settings, publication=False).cc) == "cubic"


def test_a_rule_leaves_out_what_a_medium_has_no_use_for() -> None:
    """One rule for all streams of a number must not refuse those with one receiver."""
    rig = Rig(rules=(
        StreamRule(stream_id=7, flow_control="min,t:1s", congestion_control="cubic",
                   receiver_window_bytes=262144),
    ))
    rig.names["one.example"] = "10.0.0.7"
    client = rig.client()
    for channel, kind in (
        (GROUP, FlowControl.MIN),
        ("aeron:udp?control=127.0.0.1:5000|control-mode=dynamic", FlowControl.MIN),
        ("aeron:udp?endpoint=10.0.0.7:4000", FlowControl.UNICAST),
        ("aeron:udp?endpoint=one.example:4001", FlowControl.UNICAST),
        ("aeron:ipc?term-length=64k", FlowControl.UNICAST),
    ):
        assert rig.pub(client, channel).session_id, channel
        assert rig.last(AddPublicationObject).params.flow_control is kind, channel
    assert rig.sub(client, "aeron:ipc").registration_id


@pytest.mark.parametrize(("rule", "channel", "blamed"), [
    (StreamRule(window_bytes=1 << 20), f"{GROUP}|term-length=64k", "pub-wnd=1m"),
    (StreamRule(window_bytes=1024), f"{GROUP}|mtu=8k", "pub-wnd=1k"),
    (StreamRule(flow_control="py:x:Y"), "aeron:ipc", ""),
])
def test_a_refusal_that_a_rule_is_to_blame_for_names_it(
    rule: StreamRule, channel: str, blamed: str
) -> None:
    rig = Rig(rules=(StreamRule(stream_id=99), rule))
    answer = rig.pub(rig.client(), channel)
    if not blamed:
        assert answer.session_id            # left out
        return
    assert answer.code == "invalid_channel"
    assert f"{blamed} is from [[stream]] 2 of the configuration" in answer.message


def test_what_a_rule_says_does_not_contradict_an_open_publication() -> None:
    rig = Rig(rules=(StreamRule(flow_control="min"),))
    client = rig.client()
    first = rig.pub(client, f"{GROUP}|fc=max")
    assert rig.pub(client, GROUP).session_id == first.session_id
    answer = rig.pub(client, f"{GROUP}|fc=tagged,g:1")
    assert "fc=tagged,g:1 contradicts" in answer.message


def test_a_congestion_control_is_chosen_by_rule() -> None:
    rig = Rig(rules=(
        StreamRule(stream_id=8, congestion_control="cubic", receiver_window_bytes=262144),
        StreamRule(channel="*endpoint=10.0.0.1:*", congestion_control="static"),
        StreamRule(congestion_control="cubic"),
    ))
    client = rig.client()
    for port, stream, channel, kind in (
        (4000, 8, "aeron:udp?endpoint=10.0.0.1:4000", CongestionControl.CUBIC),
        (4001, 7, "aeron:udp?endpoint=10.0.0.1:4001", CongestionControl.STATIC),
        (4002, 7, "aeron:udp?endpoint=10.0.1.1:4002", CongestionControl.CUBIC),
        (4003, 7, "aeron:udp?endpoint=10.0.1.1:4003|cc=static", CongestionControl.STATIC),
    ):
        assert rig.sub(client, channel, stream).registration_id, port
        rig.setup(rig.last(OpenRecvEndpoint).params.id, stream_id=stream)
        made = rig.last(AddImageObject).params
        assert made.congestion_control is kind, channel
        assert (made.window_bytes == 262144) == (stream == 8)


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

    def error(self, kind: str, source: str, text: str) -> None:
        self.emitted.append(LogError(text=text))


def _publication() -> Any:
    return SimpleNamespace(
        id=3, late_limits=0, plan=SimpleNamespace(channel="c"),
        params=SimpleNamespace(strategy="py:x", fc_on_late=StrategyLate.HOLD),
        state=PublicationState.ACTIVE, unanswered_ns=None, silence_notified=False,
    )


def _requested(world: _World, publication: object) -> Any:
    step: Any = custom._step(world, publication)  # type: ignore[arg-type]
    assert isinstance(next(step), ReadReceivers)
    assert isinstance(step.send((VIEW,)), RunStrategy)
    return step


def _answered(step: Any, answer: StrategyAnswer) -> None:
    with pytest.raises(StopIteration):
        step.send(answer)


def test_a_late_answer_is_used_logged_once_and_counted() -> None:
    world = _World()
    world.publications[3] = publication = _publication()
    step = _requested(world, publication)
    world.now_ns += 1_000_000
    _answered(step, StrategyAnswer(limit=5120))
    assert world.emitted == [
        SetPublicationLimit(publication_id=3, limit=5120, until_ns=1000 + custom.VALID_NS)
    ]
    world.emitted.clear()
    for _ in range(3):
        step = _requested(world, publication)
        world.now_ns += custom.DEADLINE_NS + 1
        _answered(step, StrategyAnswer(limit=5120))
    assert publication.late_limits == 3
    limits = [action for action in world.emitted if isinstance(action, SetPublicationLimit)]
    assert len(limits) == 3                         # an older limit is safer than none
    assert [type(action) for action in world.emitted].count(LogError) == 1
    world.emitted.clear()
    _answered(_requested(world, publication), StrategyAnswer(complaint="it failed"))
    assert world.emitted == [LogError(text="c: it failed")]     # and on_late applies
    assert world.timers.next_deadline_ns() <= world.now_ns + custom.STEP_NS


def test_one_that_never_answers_is_told_when_its_time_is_over() -> None:
    world = _World()
    world.publications[3] = publication = _publication()
    step = _requested(world, publication)
    world.now_ns += custom.DEADLINE_NS
    world.timers.run(world.now_ns)
    assert (publication.late_limits, world.emitted) == (0, [])
    world.now_ns += 1
    world.timers.run(world.now_ns)
    assert publication.late_limits == 1
    assert [type(action) for action in world.emitted] == [LogError]
    world.now_ns += 10**12
    _answered(step, StrategyAnswer(limit=5120))     # at last: used, and counted once only
    assert publication.late_limits == 1
    assert [type(action) for action in world.emitted] == [LogError, SetPublicationLimit]
    assert world.timers.next_deadline_ns() == world.now_ns + custom.STEP_NS    # requested again


class _Word:
    on_late: object = "max"

    def on_status_messages(self, snapshots: object, now_ns: int) -> int:
        return 0


@pytest.mark.parametrize(("rule", "late"), [
    (StreamRule(), StrategyLate.MAX), (StreamRule(strategy_on_late="min"), StrategyLate.MIN),
    (StreamRule(stream_id=8, strategy_on_late="min"), StrategyLate.MAX),
])
def test_a_rule_or_the_class_says_what_applies_while_late(
    rule: StreamRule, late: StrategyLate
) -> None:
    settings = attrs.evolve(SETTINGS, rules=(rule,))
    parsed = uri.parse(GROUP)
    assert rules.on_late(parsed, 7, settings, _Word()) is late
    assert rules.on_late(parsed, 7, attrs.evolve(settings, rules=()), None) is StrategyLate.HOLD


def test_a_class_that_says_nonsense_of_being_late_is_refused(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Word, "on_late", "sometimes")
    with pytest.raises(ChannelRefused, match="on_late is 'sometimes'; accepted: hold, max, min"):
        make(_name(_Word))


def test_a_strategy_is_made_before_the_conductor_is_held() -> None:
    rig = Rig()
    first, second = rig.client("a"), rig.client("b")
    rig.hold(MakeStrategy)
    waiting = rig.send(first, AddPublication(channel=f"{GROUP}|fc=py:x:Y", stream_id=7))
    assert rig.pub(second, GROUP, 8).session_id     # served meanwhile
    rig.resume()
    assert rig.reply(waiting).session_id
    assert rig.all(AddPublicationObject)[-1].params.strategy == "py:x:Y"


def test_one_that_is_not_made_in_time_is_refused() -> None:
    rig = Rig()
    client = rig.client()
    rig.fail(MakeStrategy, code="not_supported", message="not made within 5 s")
    answer = rig.pub(client, f"{GROUP}|fc=py:x:Y")
    assert (answer.code, answer.message) == ("not_supported", "not made within 5 s")
    rig.lose(client)
    rig.release_all()
    rig.advance(60)
    rig.assert_nothing_left()


def test_the_strategies_that_a_publication_may_get() -> None:
    mine = attrs.evolve(
        SETTINGS, multicast_flow_control="py:a:B,t:1s", unicast_flow_control="py:c:D"
    )
    assert rules.custom_names(None, mine) == ("py:a:B", "py:c:D")
    assert rules.custom_names(uri.read_flow_control("fc", "py:e:F"), mine) == ("py:e:F",)
    assert rules.custom_names(uri.read_flow_control("fc", "min"), mine) == ()
    assert rules.custom_names(None, SETTINGS) == ()
