# SPDX-License-Identifier: Apache-2.0
"""Congestion controls in Python: which class an image gets, when it is asked, what a failure
costs."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from conductor_rig import Rig

from penstock.config import uri
from penstock.config.protocol.control import AddSubscription
from penstock.config.settings.models import StreamRule
from penstock.core.congestion import CongestionView
from penstock.core.driver_types import CongestionControl
from penstock.core.errors import ChannelRefused
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.actions.congestion import (
    ReadCongestion,
    RunCongestion,
    SetCongestionWindow,
)
from penstock.daemon.conductor.sagas import congestion
from penstock.daemon.conductor.state.machines import ImageState
from penstock.daemon.conductor.state.timers import Timers
from penstock.daemon.strategies import StrategyHost, find

UNICAST = "aeron:udp?endpoint=10.0.0.1:40456"
MS = 1_000_000
VIEW = CongestionView(
    session_id=1, stream_id=2, term_length=65536, mtu=1408, window=14080, least=2816, most=32768,
    received=0, consumed=0, granted=0, losses=0, missing=0, rtt_ns=0, least_rtt_ns=0,
)


# ---- which class ---------------------------------------------------------------------------------


def image_params(rig: Rig, channel: str, **setup: Any) -> Any:
    rig.sub(rig.client(), channel)
    rig.setup(rig.last(a.OpenRecvEndpoint).params.id, **setup)
    return rig.last(a.AddImageObject).params


@pytest.mark.parametrize(("channel", "settings", "only"), [
    (f"{UNICAST}|cc=cubic", {}, False),
    (f"{UNICAST}|cc=cubic,reno:false", {}, True),
    (f"{UNICAST}|cc=cubic,reno:true", {"cubic_reno_friendly": False}, False),
    (f"{UNICAST}|cc=cubic", {"cubic_reno_friendly": False}, True),
    (UNICAST, {"congestion_control": "cubic,reno:false"}, True),
    (UNICAST, {"rules": (StreamRule(congestion_control="cubic,reno:false"),)}, True),
])
def test_the_reno_friendly_region_is_chosen_for_each_stream(
    channel: str, settings: dict[str, Any], only: bool
) -> None:
    params = image_params(Rig(**settings), channel)
    assert params.congestion_control is CongestionControl.CUBIC
    assert params.cubic_only is only


def test_options_that_differ_contradict_and_options_that_are_equal_do_not() -> None:
    rig = Rig()
    client = rig.client()
    rig.sub(client, f"{UNICAST}|cc=cubic")
    assert rig.sub(client, f"{UNICAST}|cc=cubic,reno:true").registration_id
    refusal = rig.sub(client, f"{UNICAST}|cc=cubic,reno:false")
    assert "cc=cubic,reno:false contradicts" in refusal.message
    assert "cc=cubic,reno:true" in refusal.message


def test_a_rule_sees_session_and_term_length_of_the_stream_that_arrives() -> None:
    """The subscription states neither."""
    rules = (
        StreamRule(channel="*endpoint=10.0.0.9:*", congestion_control="static"),
        StreamRule(session_id=77, congestion_control="py:a:B"),
        StreamRule(term_length_bytes=1 << 20, congestion_control="cubic,reno:false"),
        StreamRule(stream_id=9, session_id=78),
        StreamRule(stream_id=9, congestion_control="py:c:D"),
    )
    settings = Rig(rules=rules).state.settings

    def chosen(
        stream_id: int, session_id: int, term_length: int = 65536, channel: str = UNICAST
    ) -> str:
        plan = SimpleNamespace(channel=channel)
        return str(congestion.choose(
            plan, stream_id, settings, session_id=session_id,  # type: ignore[arg-type]
            term_length=term_length,
        ))

    assert chosen(7, 77) == "py:a:B"
    assert chosen(7, 5) == "static"
    assert chosen(7, 5, 1 << 20) == "cubic,reno:false"
    assert chosen(7, 77, 1 << 20) == "py:a:B"                   # the first that matches
    assert chosen(9, 78) == "static"                            # it matches and says nothing
    assert chosen(9, 79) == "py:c:D"
    assert chosen(9, 77, channel=f"{UNICAST}|cc=cubic") == "cubic,reno:true"
    assert chosen(7, 77, channel="aeron:udp?endpoint=10.0.0.9:1") == "static"
    plan: Any = SimpleNamespace(channel=UNICAST)
    named = congestion.names(plan, 9, settings)
    assert named == ("py:a:B", "py:c:D")


def test_an_image_gets_the_class_of_its_session() -> None:
    rig = Rig(rules=(StreamRule(session_id=77, congestion_control="py:a:B"),))
    params = image_params(rig, UNICAST, session_id=77)
    assert params.congestion_control is CongestionControl.CUSTOM
    assert params.congestion_name == "py:a:B"
    labels = [rig.counters[params.congestion_rtt_counter_id].label,
              rig.counters[params.congestion_window_counter_id].label]
    assert [label.partition(":")[0] for label in labels] == [
        "rcv-cc-custom-rtt", "rcv-cc-custom-wnd"
    ]
    rig.setup(rig.last(a.OpenRecvEndpoint).params.id, session_id=78)
    assert rig.last(a.AddImageObject).params.congestion_control is CongestionControl.STATIC


def test_a_class_is_checked_when_a_subscription_is_added_and_before_the_conductor_is_held() -> None:
    rig = Rig()
    first, second = rig.client("a"), rig.client("b")
    rig.hold(a.MakeStrategy)
    waiting = rig.send(first, AddSubscription(channel=f"{UNICAST}|cc=py:x:Y", stream_id=7))
    assert rig.sub(second, "aeron:udp?endpoint=10.0.0.1:40457", 8).registration_id
    rig.resume()
    assert rig.reply(waiting).registration_id
    (made,) = rig.all(a.MakeStrategy)
    assert (made.kind, made.name) == (a.StrategyKind.CONGESTION, "py:x:Y")


# ---- the class -----------------------------------------------------------------------------------


class Fixed:
    answer: object = 5000

    def on_interval(self, view: CongestionView, now_ns: int) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class NoControl:
    pass


def name_of(found: type) -> str:
    sys.modules["controls_under_test"] = sys.modules[__name__]
    return f"py:controls_under_test:{found.__name__}"


@pytest.mark.parametrize(("name", "why"), [
    ("py:nowhere_at_all:X", "No module named 'nowhere_at_all'"),
    ("py:sys:Missing", "no attribute 'Missing'"),
    ("py:nothing-of-that-name", "no entry point nothing-of-that-name in the group "
                                "penstock.congestion_control"),
    (name_of(NoControl), r"the class has no method on_interval\(view, now_ns\)"),
])
def test_what_is_no_congestion_control_is_refused_by_name(name: str, why: str) -> None:
    with pytest.raises(ChannelRefused, match=why) as caught:
        find(name, a.StrategyKind.CONGESTION)
    assert caught.value.code == "not_supported"
    assert f"cc={name}: " in str(caught.value)


def test_a_class_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an installed distribution states it; and the names that there are stand in a refusal."""
    (tmp_path / "controls_of_a_package.py").write_text(
        "class Narrow:\n    def on_interval(self, view, now_ns):\n        return view.least\n",
        encoding="utf-8",
    )
    info = tmp_path / "controls_of_a_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: controls-of-a-package\nVersion: 1.0\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text(
        "[penstock.congestion_control]\nnarrow = controls_of_a_package:Narrow\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    made = find("py:narrow", a.StrategyKind.CONGESTION)()
    assert made.on_interval(VIEW, 0) == VIEW.least
    with pytest.raises(ChannelRefused, match=r"there are: narrow"):
        find("py:wide", a.StrategyKind.CONGESTION)


@pytest.mark.parametrize("answer", [
    None, -1, 2**63, 1.5, "wide", True, ValueError("mine"), SystemExit(1),
])
def test_what_is_no_window_is_told_once_and_counted(
    answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fixed, "answer", answer)
    host = StrategyHost()
    host.open(7, name_of(Fixed), None, a.StrategyKind.CONGESTION)
    answers = [host.run(7, VIEW, n) for n in range(3)]
    assert [found.limit for found in answers] == [None] * 3
    assert repr(answer) in answers[0].complaint
    assert answers[0].complaint.endswith("the last window holds")
    assert [found.complaint for found in answers[1:]] == ["", ""]
    running = host.get(7)
    assert running is not None
    assert running.raised + running.nonsense == 3


# ---- when it is asked ----------------------------------------------------------------------------


class World:
    """As much of a world as a step needs."""

    def __init__(self) -> None:
        self.now_ns = 1000
        self.emitted: list[object] = []
        self.events: list[str] = []
        self.errors: list[str] = []
        self.timers = Timers()
        self.images: dict[int, object] = {}

    def emit(self, action: object) -> None:
        self.emitted.append(action)

    def event(self, name: str, **fields: object) -> None:
        self.events.append(name)

    def error(self, kind: str, key: str, text: str) -> None:
        self.errors.append(text)


def rig_of() -> tuple[Any, Any]:
    world = World()
    image = SimpleNamespace(
        id=3, session_id=1, stream_id=2, mtu=1408, late_limits=0, unanswered_ns=None,
        silence_told=False, released=False, state=ImageState.ACTIVE,
        log=SimpleNamespace(term_length=65536), endpoint=SimpleNamespace(channel="c"),
        params=SimpleNamespace(congestion_name="py:x:Y",
                               congestion_control=CongestionControl.CUSTOM),
    )
    world.images[3] = image
    return world, image


def asked(world: Any, image: Any, rtt_ns: int = 0) -> Any:
    step: Any = congestion._step(world, image)
    assert isinstance(next(step), ReadCongestion)
    assert isinstance(step.send(attrs.evolve(VIEW, rtt_ns=rtt_ns)), RunCongestion)
    return step


def answered(step: Any, answer: a.StrategyAnswer) -> None:
    with pytest.raises(StopIteration):
        step.send(answer)


@pytest.mark.parametrize(("rtt_ns", "interval_ns"), [
    (0, 10 * MS), (1 * MS, 10 * MS), (10 * MS, 10 * MS), (70 * MS, 70 * MS),
    (1000 * MS, 1000 * MS), (4000 * MS, 1000 * MS),
])
def test_it_is_asked_once_a_round_trip_and_at_most_each_10_ms(
    rtt_ns: int, interval_ns: int
) -> None:
    world, image = rig_of()
    step = asked(world, image, rtt_ns)
    world.now_ns += 3 * MS
    answered(step, a.StrategyAnswer(limit=9000))
    assert world.emitted == [SetCongestionWindow(image_id=3, window=9000)]
    started: list[int] = []
    world.runner = SimpleNamespace(start=lambda saga, done: started.append(world.now_ns))
    world.now_ns = 1000 + interval_ns - 1
    world.timers.run(world.now_ns)
    assert started == []
    world.now_ns += 1
    world.timers.run(world.now_ns)
    assert started == [1000 + interval_ns]


def test_a_late_answer_is_used_logged_once_and_counted() -> None:
    world, image = rig_of()
    for _ in range(3):
        step = asked(world, image)
        world.now_ns += congestion.DEADLINE_NS + 1
        answered(step, a.StrategyAnswer(limit=9000))
    assert image.late_limits == 3
    assert [type(action) for action in world.emitted] == 3 * [SetCongestionWindow]
    assert world.errors == ["c: session 1 of stream 2: cc=py:x:Y: no answer within 20 ms; while it "
                            "is late, its last window holds"]


def test_silence_of_five_seconds_is_told_once_and_so_is_its_end() -> None:
    world, image = rig_of()
    congestion._watch_silence(world, image)
    step = asked(world, image)
    answered(step, a.StrategyAnswer(complaint="it raised"))     # no answer either
    for _ in range(8):
        world.now_ns += congestion.SILENT_NS // 5
        _run_watch(world)
    assert world.events == ["congestion_silent"]
    raised, silent = world.errors
    assert raised.endswith("it raised")
    assert "only the receiver window applies until the class answers" in silent
    answered(asked(world, image), a.StrategyAnswer(limit=9000))
    assert world.events == ["congestion_silent", "congestion_answers"]
    assert (image.unanswered_ns, image.silence_told) == (None, False)


def _run_watch(world: Any) -> None:
    """The timers, without asking again."""
    world.runner = SimpleNamespace(start=lambda saga, done: saga.close())
    world.timers.run(world.now_ns)


def test_an_image_that_has_gone_is_not_asked_again() -> None:
    world, image = rig_of()
    started: list[object] = []
    world.runner = SimpleNamespace(start=lambda saga, done: started.append(saga))
    step = asked(world, image)
    del world.images[3]
    answered(step, a.StrategyAnswer(limit=9000))
    assert not any(isinstance(action, SetCongestionWindow) for action in world.emitted)
    world.now_ns += 1000 * MS
    world.timers.run(world.now_ns)
    assert started == []


def test_the_uri_and_the_text_of_a_rule_are_read_alike() -> None:
    parsed = uri.parse(f"{UNICAST}|cc=py:a.b:C")
    assert parsed.cc == uri.read_congestion_control("cc", "py:a.b:C")
    assert str(uri.parse(f"{UNICAST}|cc=cubic,reno:false")) == f"{UNICAST}|cc=cubic,reno:false"
