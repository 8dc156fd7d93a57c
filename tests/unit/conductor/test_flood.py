# SPDX-License-Identifier: Apache-2.0
"""A flood of SETUPs does not hold up clients: the conductor's work is done in bounded turns."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from conductor_rig import Rig

from penstock.config.protocol import control
from penstock.core.driver_events import DriverEvent, Loss, Setup
from penstock.core.driver_types import Address, EventType, ObjectKind
from penstock.daemon.conductor import actions as a
from penstock.daemon.event_pump import EVENTS_PER_TURN, SETUPS_PER_TURN, EventPump

UNICAST = "aeron:udp?endpoint=10.0.0.1:40456"
ELSEWHERE = "aeron:udp?endpoint=10.0.0.2:40456"


def a_setup(endpoint: int, number: int, addresses: int) -> DriverEvent:
    who = number % addresses
    return Setup(
        kind=ObjectKind.RECV_ENDPOINT, id=endpoint, now_ns=0, stream_id=7,
        session_id=number, initial_term_id=0, active_term_id=0, term_offset=0,
        term_length=1 << 30, mtu=1408,
        source=Address(ip=f"10.1.{who // 250}.{who % 250}", port=1000),
    )


def flooded(addresses: int, **settings: Any) -> tuple[Rig, int, deque[DriverEvent], EventPump]:
    rig = Rig(storage_budget_bytes=8 << 30, **settings)
    client = rig.client()
    rig.sub(client, UNICAST)
    endpoint = rig.last(a.OpenRecvEndpoint).params.id
    events = deque(a_setup(endpoint, number, addresses) for number in range(2000))
    pump = EventPump(
        lambda: events.popleft() if events else None,
        lambda event: rig._run(rig.conductor.on_event(event, rig.now_ns)),
    )
    return rig, client, events, pump


@pytest.mark.parametrize("addresses", [1, 5000])
def test_100_publications_are_served_within_two_turns_each(addresses: int) -> None:
    rig, client, events, pump = flooded(addresses)
    for number in range(100):
        before = len(events)
        correlation = rig.send(
            client, control.AddPublication(channel=ELSEWHERE, stream_id=1000 + number)
        )
        pump.turn()
        pump.turn()
        assert before - len(events) <= 2 * SETUPS_PER_TURN
        assert isinstance(rig.reply(correlation), control.PublicationReady)


def test_half_open_sessions_take_a_quarter_of_the_storage() -> None:
    rig = Rig(storage_budget_bytes=64 << 20)
    client = rig.client()
    rig.sub(client, UNICAST)
    endpoint = rig.last(a.OpenRecvEndpoint).params.id
    for number in range(2000):
        rig._run(rig.conductor.on_event(a_setup(endpoint, number, 5000), 0))
    assert 0 < rig.state.storage.used_bytes <= 16 << 20
    assert isinstance(
        rig.request(client, control.AddPublication(channel=ELSEWHERE, stream_id=1)),
        control.PublicationReady,
    )
    image = rig.all(a.AddImageObject)[0].params.id
    rig.event(EventType.IMAGE_ESTABLISHED, kind=ObjectKind.IMAGE, id=image)
    made = len(rig.all(a.AddImageObject))
    rig._run(rig.conductor.on_event(a_setup(endpoint, 2000, 5000), 0))
    assert len(rig.all(a.AddImageObject)) == made + 1           # its share is free again


def test_a_turn_takes_few_setups_and_many_other_events() -> None:
    _rig, _client, events, pump = flooded(1)
    assert pump.turn()
    assert len(events) == 2000 - SETUPS_PER_TURN
    events.clear()
    events.extend(Loss(now_ns=0, id=1) for _ in range(300))
    assert pump.turn()
    assert len(events) == 300 - EVENTS_PER_TURN
    assert not pump.turn()


def test_requests_go_before_setups_that_wait() -> None:
    """While a large log is made, SETUPs and requests queue up: the requests are served first."""
    rig, client, _events, pump = flooded(5)
    rig.hold(a.CreateLog)
    rig.send(client, control.AddPublication(channel=ELSEWHERE, stream_id=1))
    for _ in range(8):
        pump.turn()                                             # 64 SETUPs wait
    waiting = [
        rig.send(client, control.AddPublication(channel=ELSEWHERE, stream_id=2 + n))
        for n in range(3)
    ]
    for _ in range(4):
        assert "publications" in rig.held[0].action.params.path     # type: ignore[attr-defined]
        rig.resume()
    for correlation in waiting:
        assert isinstance(rig.reply(correlation), control.PublicationReady)
