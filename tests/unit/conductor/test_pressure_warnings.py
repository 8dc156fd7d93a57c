# SPDX-License-Identifier: Apache-2.0
"""Warnings of settings and loads that defeat back-pressure: once each, with the remedy."""

from __future__ import annotations

import pytest
from conductor_rig import SECOND_NS, Rig

from penstock.core.driver_types import EventType, ObjectKind
from penstock.daemon.conductor import actions as a

UDP = "aeron:udp?endpoint=127.0.0.1:40456"


def warnings(rig: Rig) -> list[tuple[str, str]]:
    """Kind and text of each; log, feed and status agree."""
    events = [e.fields for e in rig.all(a.PublishEvent) if e.name == "backpressure_warning"]
    lines = [action.text for action in rig.all(a.Warn)]
    assert len(lines) == len(events)
    assert all(line.endswith(e["message"]) for line, e in zip(lines, events, strict=True))
    shown = [text for pub in rig.conductor.snapshot().publications for text in pub.warnings]
    assert sorted(shown) == sorted(fields["message"] for fields in events)
    return [(fields["kind"], fields["message"]) for fields in events]


def trigger(rig: Rig, publication: int) -> None:
    rig.event(EventType.PRESSURE_TRIGGERED, kind=ObjectKind.PUBLICATION, id=publication, episodes=1)


def relieve(rig: Rig, publication: int, seconds: float, episodes: int = 1) -> None:
    rig.event(
        EventType.PRESSURE_RELIEVED, kind=ObjectKind.PUBLICATION, id=publication,
        duration_ns=int(seconds * SECOND_NS), episodes=episodes,
    )


@pytest.mark.parametrize(("flow_control", "warned"), [
    ("min", False), ("min,t:2s", False), ("min,t:1999ms", True), ("tagged,g:7,t:500ms", True),
    ("max", False),
])
def test_a_time_out_below_the_silence_of_an_idle_receiver_is_named(
    flow_control: str, warned: bool
) -> None:
    rig = Rig()
    client = rig.client()
    rig.pub(client, f"aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.1|fc={flow_control}")
    assert len(rig.conductor.snapshot().publications) == 1
    assert [kind for kind, _ in warnings(rig)] == ["receiver_timeout"] * warned
    assert all("state t:2s or more in fc" in text for _, text in warnings(rig))
    rig.lose(client)
    rig.release_all()


@pytest.mark.parametrize(("options", "kinds"), [
    ("", []),
    ("|term-length=256m", []),          # no depth was chosen
    ("|ps-policy=block|ps-low-watermark=0.94", []),
    ("|ps-policy=block|ps-low-watermark=0.95", ["low_watermark"]),
    ("|ps-low-watermark=1|ps-depth=100k", ["low_watermark"]),
    ("|term-length=256m|ps-depth=61m", []),
    ("|term-length=256m|ps-depth=62m", ["depth"]),
    ("|ps-depth=999999msg", []),
    ("|ps-depth=1000000msg", ["depth"]),
    ("|term-length=256m|ps-depth=62m|ps-low-watermark=0.99", ["depth", "low_watermark"]),
])
def test_settings_are_judged_when_the_publication_is_made(
    options: str, kinds: list[str]
) -> None:
    rig = Rig()
    client = rig.client()
    rig.pub(client, UDP + options)
    rig.pub(client, UDP + options)      # the same publication
    found = warnings(rig)
    assert [kind for kind, _ in found] == kinds
    remedies = {"depth": "state ps-depth =", "low_watermark": "state ps-low-watermark=0.5"}
    assert all(remedies[kind] in text for kind, text in found)
    rig.lose(client)
    rig.release_all()


def test_pressure_without_relief_is_reported_after_a_minute_once() -> None:
    rig = Rig()
    publication = rig.pub(rig.client(), UDP).original_id
    trigger(rig, publication)
    rig.advance(59)
    assert not warnings(rig)
    rig.advance(2)
    ((kind, text),) = warnings(rig)
    assert kind == "sustained"
    assert "held for 60 of the last 60 s" in text
    assert "add readers" in text
    relieve(rig, publication, 61)
    trigger(rig, publication)
    rig.advance(1000)
    assert len(warnings(rig)) == 1


@pytest.mark.parametrize(("each_s", "episodes", "expected"), [
    (0.1, 1, False), (0.4, 1, False), (0.6, 1, True), (0.1, 6, True), (0.1, 4, False),
])
def test_many_short_stalls_add_up(each_s: float, episodes: int, expected: bool) -> None:
    """Events come once a second, and one may stand for several stalls."""
    rig = Rig()
    publication = rig.pub(rig.client(), UDP).original_id
    for _ in range(65):
        trigger(rig, publication)
        rig.advance(each_s)
        relieve(rig, publication, each_s, episodes)
        rig.advance(1 - each_s)
    assert bool(warnings(rig)) is expected


def test_pressure_that_begins_late_in_a_minute_counts_in_the_next() -> None:
    rig = Rig()
    publication = rig.pub(rig.client(), UDP).original_id
    trigger(rig, publication)
    relieve(rig, publication, 0.1)
    rig.advance(50)
    trigger(rig, publication)
    rig.advance(11)
    assert not warnings(rig)
    rig.advance(60)
    assert [kind for kind, _ in warnings(rig)] == ["sustained"]


def test_a_publication_that_has_ended_is_not_warned_of() -> None:
    rig = Rig()
    client = rig.client()
    publication = rig.pub(client, UDP).original_id
    trigger(rig, publication)
    rig.lose(client)
    rig.advance(61)
    assert not rig.all(a.Warn)
