# SPDX-License-Identifier: Apache-2.0
"""Common steps at the end of an object: release counters and slots, and close endpoints."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.core.driver_types import NO_COUNTER, ObjectKind, SlotKind
from penstock.daemon.conductor.actions import FreeCounter, FreeSlot, RemoveObject, SetCounter
from penstock.daemon.conductor.channel.counters import ChannelStatus
from penstock.daemon.conductor.state.machines import EndpointState
from penstock.daemon.conductor.state.model import RecvEndpoint, SendEndpoint
from penstock.daemon.conductor.state.state import State

SLOT_RESTS_NS = 1_000_000_000
"""So long a client may still look at the slot of an object that has gone."""


def free_counters(state: State, counters: Iterable[int]) -> None:
    for counter in counters:
        if counter != NO_COUNTER:
            state.emit(FreeCounter(counter_id=counter))


def free_slot_later(state: State, kind: SlotKind, index: int) -> None:
    state.timers.at(
        state.now_ns + SLOT_RESTS_NS, lambda: state.emit(FreeSlot(kind=kind, index=index))
    )


def close_endpoint(
    state: State, endpoint: SendEndpoint | RecvEndpoint, kind: ObjectKind
) -> None:
    """Close an endpoint that no stream uses any more: request that its owner (the sender or
    receiver thread) releases the endpoint."""
    endpoint.state = EndpointState.CLOSING
    state.emit(SetCounter(counter_id=endpoint.status_counter, value=ChannelStatus.CLOSING))
    state.emit(RemoveObject(kind=kind, object_id=endpoint.id))
