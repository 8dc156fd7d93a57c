# SPDX-License-Identifier: Apache-2.0
"""Congestion control as the conductor chooses it."""

from __future__ import annotations

import pytest
from conductor_rig import Rig

from penstock.core.driver_types import NO_COUNTER, CongestionControl
from penstock.daemon.conductor import actions as a

UNICAST = "aeron:udp?endpoint=10.0.0.1:40456"


def image_of(channel: str, **settings: object) -> tuple[Rig, a.AddImageObject]:
    rig = Rig(**settings)
    rig.sub(rig.client(), channel)
    rig.setup(rig.last(a.OpenRecvEndpoint).params.id)
    return rig, rig.last(a.AddImageObject)


@pytest.mark.parametrize(
    ("channel", "settings"),
    [(f"{UNICAST}|cc=cubic", {}), (UNICAST, {"congestion_control": "cubic"})],
)
def test_cubic_by_channel_and_by_configuration(channel: str, settings: dict[str, str]) -> None:
    rig, made = image_of(channel, **settings)
    assert made.params.congestion_control is CongestionControl.CUBIC
    for counter_id, name in (
        (made.params.congestion_rtt_counter_id, "rcv-cc-cubic-rtt"),
        (made.params.congestion_window_counter_id, "rcv-cc-cubic-wnd"),
    ):
        counter = rig.counters[counter_id]
        assert counter.type_id == 10
        assert counter.label.startswith(f"{name}: ")
        assert counter.value == 0


def test_static_is_the_default_and_wins_by_channel() -> None:
    _rig, made = image_of(UNICAST)
    assert made.params.congestion_control is CongestionControl.STATIC
    assert made.params.congestion_rtt_counter_id == NO_COUNTER
    _rig, made = image_of(f"{UNICAST}|cc=static", congestion_control="cubic")
    assert made.params.congestion_control is CongestionControl.STATIC


def test_subscriptions_of_one_stream_agree() -> None:
    rig = Rig()
    client = rig.client()
    rig.sub(client, UNICAST)
    refusal = rig.sub(client, f"{UNICAST}|cc=cubic")
    assert refusal.code == "invalid_channel"
    assert "cc=cubic" in refusal.message
    assert "cc=static" in refusal.message
