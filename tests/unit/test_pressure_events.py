# SPDX-License-Identifier: Apache-2.0
"""Events of streams under pressure, and of readers that fall behind, in the event feed."""

from __future__ import annotations

from typing import Any

import pytest
from conductor_rig import Rig

from penstock.core.driver_types import Address, Cause, EventType, ObjectKind
from penstock.daemon.conductor import actions as a


def reported(rig: Rig, name: str) -> list[dict[str, Any]]:
    return [dict(e.fields) for e in rig.all(a.PublishEvent) if e.name == name]


@pytest.mark.parametrize("local", [False, True])
def test_both_ends_of_an_episode_are_reported_with_the_culprit(local: bool) -> None:
    rig = Rig()
    client = rig.client("reader")
    publication = rig.pub(client, "aeron:udp?endpoint=10.0.0.2:40456").registration_id
    source = None if local else Address(ip="10.0.0.2", port=40456)
    common: dict[str, Any] = {
        "kind": ObjectKind.PUBLICATION, "id": publication, "source": source,
        "culprit": client if local else 5, "cause": Cause.RECEIVER_WINDOW, "stream_id": 7,
        "peak_bytes": 4096, "depth_bytes": 4096, "episodes": 3,
    }
    rig.event(EventType.PRESSURE_TRIGGERED, **common)
    rig.event(EventType.PRESSURE_RELIEVED, **common, duration_ns=2_000_000, drained=40)
    (triggered,) = reported(rig, "pressure_triggered")
    (relieved,) = reported(rig, "pressure_relieved")
    assert triggered["cause"] == relieved["cause"] == "receiver_window"
    name = f"client {client} 'reader' (pid 10)" if local else "receiver 5 at 10.0.0.2:40456"
    assert triggered["culprit"] == name
    assert triggered["episodes"] == 3
    assert (relieved["duration_ns"], relieved["drained_messages"]) == (2_000_000, 40)
    assert relieved["peak_bytes"] == 4096


def test_an_unknown_count_of_messages_is_none_and_a_removed_stream_is_silent() -> None:
    rig = Rig()
    publication = rig.pub(rig.client(), "aeron:ipc").registration_id
    rig.event(
        EventType.PRESSURE_RELIEVED, kind=ObjectKind.PUBLICATION, id=publication, drained=-1
    )
    rig.event(EventType.PRESSURE_RELIEVED, kind=ObjectKind.PUBLICATION, id=publication + 1000)
    (relieved,) = reported(rig, "pressure_relieved")
    assert relieved["drained_messages"] is None


def test_a_reader_that_falls_behind_is_reported_with_its_client() -> None:
    rig = Rig()
    client = rig.client("reader")
    publication = rig.pub(client, "aeron:ipc").registration_id
    channel = "aeron:ipc?ps-sub-policy=independent"
    subscription = rig.sub(client, channel).registration_id
    (link,) = rig.state.publications[publication].subscribers.values()
    common: dict[str, Any] = {
        "kind": ObjectKind.PUBLICATION, "id": publication, "stream_id": 7,
        "position_counter_id": link.counter_id,
    }
    rig.event(EventType.READER_LAGGED, **common, lagged=1, behind=4096)
    rig.event(
        EventType.READER_LAGGED, **common, lagged=0, behind=32, messages=12, duration_ns=5_000_000
    )
    rig.event(EventType.READER_LAGGED, **(common | {"position_counter_id": 4711}), lagged=1)
    (skips,) = reported(rig, "reader_skips")
    (continues,) = reported(rig, "reader_continues")
    assert skips["cause"] == continues["cause"] == "slow_subscriber"
    assert skips["culprit"] == f"client {client} 'reader' (pid 10)"
    assert (skips["subscription_id"], skips["behind_bytes"]) == (subscription, 4096)
    assert (continues["skipped_messages"], continues["duration_ns"]) == (12, 5_000_000)
