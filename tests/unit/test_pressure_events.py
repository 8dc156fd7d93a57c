# SPDX-License-Identifier: Apache-2.0
"""``pressure_triggered`` and ``pressure_relieved`` in the event feed."""

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
