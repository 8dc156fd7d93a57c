# SPDX-License-Identifier: Apache-2.0
"""Priorities of publications: the channel, the rules and the daemon's default."""

from __future__ import annotations

from typing import Any

import pytest
from conductor_rig import Rig

from penstock.config import uri
from penstock.config.settings.models import StreamRule
from penstock.core.driver_types import PRIORITY_AUTO, PRIORITY_BACKGROUND, PRIORITY_NONE
from penstock.daemon.conductor.actions import AddPublicationObject

CHANNEL = "aeron:udp?endpoint=127.0.0.1:4000"


def _priority(channel: str, **settings: Any) -> int:
    rig = Rig(**settings)
    rig.pub(rig.client(), channel)
    return rig.last(AddPublicationObject).params.priority


@pytest.mark.parametrize(("stated", "expected"), [
    ("", PRIORITY_AUTO),
    ("|ps-auto-priority=true", PRIORITY_AUTO),
    ("|ps-auto-priority=false", PRIORITY_NONE),
    ("|ps-priority=-1000", -1000),
    ("|ps-priority=1000|ps-auto-priority=true", 1000),
    ("|ps-priority=0|ps-auto-priority=false", 0),
])
def test_the_sender_gets_what_the_channel_states(stated: str, expected: int) -> None:
    assert _priority(CHANNEL + stated) == expected


def test_a_rule_states_a_priority_and_the_channel_wins() -> None:
    rules = (StreamRule(channel="*", stream_id=7, priority=-5),)
    assert _priority(CHANNEL, rules=rules) == -5
    assert _priority(CHANNEL + "|ps-priority=9", rules=rules) == 9


def test_the_daemon_can_leave_recency_out() -> None:
    assert _priority(CHANNEL, auto_priority=False) == PRIORITY_NONE
    assert _priority(CHANNEL + "|ps-auto-priority=true", auto_priority=False) == PRIORITY_AUTO


@pytest.mark.parametrize(("stated", "expected"), [
    ("", PRIORITY_BACKGROUND),
    ("|ps-auto-priority=false", PRIORITY_BACKGROUND),
    ("|ps-priority=300", 300),
])
def test_a_relayed_stream_without_a_stated_priority_is_in_the_background(
    stated: str, expected: int
) -> None:
    rig = Rig()
    rig.pub(rig.client(), CHANNEL + stated, exclusive=True, relay_path=[7])
    assert rig.last(AddPublicationObject).params.priority == expected


@pytest.mark.parametrize("text", ["1001", "-1001", "high", "1.5", "+"])
def test_a_priority_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(uri.ChannelError, match=r"ps-priority.*-1000"):
        uri.parse(f"{CHANNEL}|ps-priority={text}")


def test_a_stream_can_be_exempt_from_the_governor() -> None:
    rig = Rig()
    rig.pub(rig.client(), CHANNEL + "|ps-never-throttle=true")
    assert rig.last(AddPublicationObject).params.never_throttle
    rig.pub(rig.client("other"), CHANNEL, 8)
    assert not rig.last(AddPublicationObject).params.never_throttle
