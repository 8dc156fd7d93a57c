# SPDX-License-Identifier: Apache-2.0
"""Sockets of publications. The conductor opens a socket for the first publication of a channel.
Later publications with the same addresses or the same tag share the socket of the first
publication. The conductor closes a socket after the last publication that uses the socket has
ended."""

from __future__ import annotations

from typing import Final

from penstock.core.driver_events import DestinationChanged
from penstock.core.driver_types import (
    NO_COUNTER,
    Address,
    Mdc,
    ObjectKind,
    SendEndpointParams,
)
from penstock.daemon.conductor.actions import (
    AddSendDestination,
    DestroyObject,
    FreeCounter,
    OpenSendEndpoint,
    RemoveObject,
    RemoveSendDestination,
    SetCounter,
    SetSendAddress,
)
from penstock.daemon.conductor.channel.counters import (
    ChannelStatus,
    CounterType,
    channel_counter,
    local_address_counter,
)
from penstock.daemon.conductor.channel.lookup import SendAddressing, resolve
from penstock.daemon.conductor.channel.plans import EndpointPlan, destination_plan, parse
from penstock.daemon.conductor.saga import EXCLUSIVE, UNTIL_RELEASE, Refused, Saga, Undo
from penstock.daemon.conductor.sagas.freeing import close_endpoint, free_counters
from penstock.daemon.conductor.state.machines import EndpointState
from penstock.daemon.conductor.state.model import Destination, SendEndpoint
from penstock.daemon.conductor.state.registry import erase, note_send_endpoint
from penstock.daemon.conductor.state.state import State

MAX_DYNAMIC_DESTINATIONS: Final = 2048      # PS_DESTINATIONS_DYNAMIC_MAX
_MDC = {"": Mdc.NONE, "dynamic": Mdc.DYNAMIC, "manual": Mdc.MANUAL}


def acquire(
    state: State, plan: EndpointPlan, addressing: SendAddressing | None
) -> Saga[SendEndpoint]:
    """Return the send endpoint of a channel: an open endpoint that the channel can share, or a new
    one. The caller holds EXCLUSIVE."""
    if addressing is None:
        for endpoint in state.send_endpoints.values():
            if endpoint.tag == plan.channel_tag and endpoint.state is EndpointState.OPEN:
                return endpoint
        raise Refused(
            "invalid_channel",
            f"{plan.channel}: no open publication channel has tag {plan.channel_tag}; state "
            "an endpoint or control-mode",
        )
    while True:
        same = [e for e in state.send_endpoints.values() if _is_same(e, plan, addressing)]
        if not same:
            return (yield from _open(state, plan, addressing))
        if same[0].state is EndpointState.OPEN:
            _check_shared(same[0], plan, addressing)
            return same[0]
        yield UNTIL_RELEASE


def _is_same(endpoint: SendEndpoint, plan: EndpointPlan, addressing: SendAddressing) -> bool:
    if addressing.key is not None:
        return endpoint.key == addressing.key
    return plan.channel_tag is not None and endpoint.tag == plan.channel_tag


def _check_shared(endpoint: SendEndpoint, plan: EndpointPlan, addressing: SendAddressing) -> None:
    wanted = (addressing.data.sndbuf_bytes, addressing.data.rcvbuf_bytes)
    for key, given, old, new in (
        ("so-sndbuf", plan.sndbuf_bytes, endpoint.buffers[0], wanted[0]),
        ("so-rcvbuf", plan.rcvbuf_bytes, endpoint.buffers[1], wanted[1]),
        ("ttl", plan.ttl or None, endpoint.ttl, addressing.data.multicast_ttl),
    ):
        if given is not None and old != new:
            raise Refused(
                "invalid_channel",
                f"{plan.channel}: {key}={new} contradicts the open channel {endpoint.channel}, "
                f"which has {key}={old}",
            )


def _open(state: State, plan: EndpointPlan, addressing: SendAddressing) -> Saga[SendEndpoint]:
    endpoint_id = state.next_id()
    undo = Undo(state.runner)
    destinations = refused = NO_COUNTER
    try:
        status: int = yield channel_counter(
            CounterType.SEND_CHANNEL, name="snd-channel", registration_id=endpoint_id,
            channel=plan.channel,
        )
        undo.on_failure(FreeCounter(counter_id=status))
        if addressing.mode:
            destinations = yield channel_counter(
                CounterType.MDC_DESTINATIONS, name="mdc-num-dest", registration_id=endpoint_id,
                channel=plan.channel,
            )
            undo.on_failure(FreeCounter(counter_id=destinations))
        if addressing.mode == "dynamic":
            refused = yield channel_counter(
                CounterType.MDC_REFUSED, name="mdc-refused", registration_id=endpoint_id,
                channel=plan.channel,
            )
            undo.on_failure(FreeCounter(counter_id=refused))
        params = SendEndpointParams(
            id=endpoint_id,
            data=addressing.data,
            control=addressing.control,
            mdc=_MDC[addressing.mode],
            status_counter_id=status,
            destinations_counter_id=destinations,
            refused_counter_id=refused,
            multicast=addressing.multicast,
        )
        local: Address = yield OpenSendEndpoint(params=params)
        undo.on_failure(RemoveObject(kind=ObjectKind.SEND_ENDPOINT, object_id=endpoint_id))
        address: int = yield local_address_counter(
            name="snd-local-sockaddr", registration_id=endpoint_id, status_counter_id=status,
            address=local,
        )
    except Refused:
        undo.roll_back()
        raise
    state.emit(SetCounter(counter_id=status, value=ChannelStatus.ACTIVE))
    endpoint = SendEndpoint(
        id=endpoint_id,
        key=addressing.key,
        channel=plan.channel,
        tag=plan.channel_tag,
        params=params,
        status_counter=status,
        address_counter=address,
        destinations_counter=destinations,
        refused_counter=refused,
        local=local,
        peer=addressing.peer,
        peer_address=addressing.peer_address,
        multicast=addressing.multicast,
        manual=addressing.mode == "manual",
        group=addressing.multicast or bool(addressing.mode),
        ttl=addressing.data.multicast_ttl,
        buffers=(addressing.data.sndbuf_bytes, addressing.data.rcvbuf_bytes),
    )
    state.send_endpoints[endpoint_id] = endpoint
    note_send_endpoint(state, endpoint)
    return endpoint


def release_if_unused(state: State, endpoint: SendEndpoint) -> None:
    """Close an endpoint without publications."""
    if endpoint.publications or endpoint.state is not EndpointState.OPEN:
        return
    close_endpoint(state, endpoint, ObjectKind.SEND_ENDPOINT)


def on_released(state: State, endpoint_id: int) -> None:
    state.emit(DestroyObject(kind=ObjectKind.SEND_ENDPOINT, object_id=endpoint_id))
    endpoint = state.send_endpoints.pop(endpoint_id, None)
    if endpoint is None:
        return                          # opened by a command that failed later
    erase(state, "send_endpoint", endpoint_id)
    free_counters(state, (
        endpoint.status_counter, endpoint.address_counter, endpoint.destinations_counter,
        endpoint.refused_counter,
    ))


def on_destination(state: State, event: DestinationChanged) -> None:
    """Report that a receiver of a dynamic multi-destination channel joined, left or was refused."""
    endpoint = state.send_endpoints.get(event.id)
    if event.change >= 0 or endpoint is None:
        state.event(
            "destination", endpoint_id=event.id, address=str(event.source), added=bool(event.change)
        )
        return
    state.error(
        "mdc_full", endpoint.channel,
        f"{endpoint.channel}: the channel has its maximum of {MAX_DYNAMIC_DESTINATIONS} receivers; "
        "a further receiver gets no data until one leaves: use several channels",
    )
    state.event(
        "destinations_full", endpoint_id=event.id, channel=endpoint.channel,
        address=str(event.source), refused=event.refused,
    )


# ---- destinations --------------------------------------------------------------------------------


def add_destination(state: State, endpoint: SendEndpoint, channel: str) -> Saga[int]:
    """Add an address to a manual multi-destination channel; return its id."""
    if not endpoint.manual:
        raise Refused(
            "invalid_channel",
            f"{endpoint.channel}: destinations can be added only with control-mode=manual",
        )
    plan = destination_plan(parse(channel), channel, subscription=False)
    assert plan.endpoint is not None
    address = yield from resolve(plan.endpoint)
    yield EXCLUSIVE
    if endpoint.state is not EndpointState.OPEN:
        raise Refused("unknown_registration", f"{endpoint.channel} was closed meanwhile")
    destination_id = state.next_id()
    yield AddSendDestination(
        endpoint_id=endpoint.id, destination_id=destination_id, address=address
    )
    endpoint.destinations[destination_id] = Destination(
        id=destination_id,
        channel=channel,
        address=address,
        name=plan.endpoint if plan.endpoint.ip is None else None,
    )
    note_send_endpoint(state, endpoint)
    return destination_id


def remove_destination(state: State, endpoint: SendEndpoint, destination_id: int) -> Saga[None]:
    yield RemoveSendDestination(endpoint_id=endpoint.id, destination_id=destination_id)
    del endpoint.destinations[destination_id]
    note_send_endpoint(state, endpoint)


def resolve_again(state: State, endpoint: SendEndpoint, silent: Address | None) -> Saga[None]:
    """If no status message arrives for a send endpoint, resolve its host names again. Use the new
    address if the address of a name has changed."""
    if endpoint.peer is not None:
        address = yield from resolve(endpoint.peer)
        if address != endpoint.peer_address and endpoint.state is EndpointState.OPEN:
            endpoint.peer_address = address
            note_send_endpoint(state, endpoint)
            state.emit(
                SetSendAddress(endpoint_id=endpoint.id, destination_id=-1, address=address)
            )
            state.event("resolved", channel=endpoint.channel, address=str(address))
    for destination in list(endpoint.destinations.values()):
        if destination.name is None or silent not in (None, destination.address):
            continue
        address = yield from resolve(destination.name)
        if address != destination.address and destination.id in endpoint.destinations:
            destination.address = address
            note_send_endpoint(state, endpoint)
            state.emit(
                SetSendAddress(
                    endpoint_id=endpoint.id, destination_id=destination.id, address=address
                )
            )
            state.event("resolved", channel=destination.channel, address=str(address))
