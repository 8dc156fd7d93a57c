# SPDX-License-Identifier: Apache-2.0
"""Open and close the sockets of subscriptions: one socket for a plain channel, one for each
destination of a manual multi-destination subscription. A receive endpoint counts the subscriptions
that read each stream and each session."""

from __future__ import annotations

import attrs

from penstock.core.driver_types import (
    NO_COUNTER,
    Address,
    ObjectKind,
    RecvDestinationParams,
    RecvEndpointParams,
)
from penstock.daemon.conductor.actions import (
    AddInterest,
    AddRecvDestination,
    DestroyObject,
    DestroyRecvDestination,
    FreeCounter,
    OpenRecvEndpoint,
    RemoveInterest,
    RemoveObject,
    RemoveRecvDestination,
    SetCounter,
    SetRecvControl,
)
from penstock.daemon.conductor.channel.counters import (
    ChannelStatus,
    CounterType,
    channel_counter,
    local_address_counter,
)
from penstock.daemon.conductor.channel.lookup import RecvAddressing, recv_addressing, resolve
from penstock.daemon.conductor.channel.plans import SubscriptionPlan, destination_plan, parse
from penstock.daemon.conductor.saga import EXCLUSIVE, UNTIL_RELEASE, Refused, Saga, Undo
from penstock.daemon.conductor.sagas.freeing import close_endpoint, free_counters
from penstock.daemon.conductor.sagas.recv_buffers import fit, is_given
from penstock.daemon.conductor.state.machines import EndpointState
from penstock.daemon.conductor.state.model import Destination, RecvEndpoint
from penstock.daemon.conductor.state.registry import erase, note_recv_endpoint
from penstock.daemon.conductor.state.state import State


def acquire(
    state: State, plan: SubscriptionPlan, addressing: RecvAddressing | None
) -> Saga[RecvEndpoint]:
    """Return the receive endpoint of a channel: an open endpoint that the channel can share, or a
    new one. ``addressing`` is None if the channel names a tag, or if its destinations are added
    later. The caller holds EXCLUSIVE."""
    address = plan.address
    manual = address.control_mode == "manual"
    tag = address.channel_tag
    tagged = [e for e in state.recv_endpoints.values() if tag is not None and e.tag == tag]
    if addressing is None and not manual:
        for endpoint in tagged:
            if endpoint.state is EndpointState.OPEN:
                return endpoint
        raise Refused(
            "invalid_channel",
            f"{plan.channel}: no open subscription channel has tag {tag}; state an endpoint",
        )
    while True:
        if addressing is not None and addressing.key is not None:
            same = [e for e in state.recv_endpoints.values() if e.key == addressing.key]
        else:
            same = [e for e in tagged if e.manual == manual]
        if not same:
            return (yield from _open(state, plan, addressing))
        if same[0].state is EndpointState.OPEN:
            _check_shared(same[0], plan)
            return same[0]
        yield UNTIL_RELEASE
        tagged = [e for e in state.recv_endpoints.values() if tag is not None and e.tag == tag]


def _check_shared(endpoint: RecvEndpoint, plan: SubscriptionPlan) -> None:
    for key, old, new in (
        ("so-sndbuf", endpoint.buffers[0], plan.address.sndbuf_bytes),
        ("so-rcvbuf", endpoint.buffers[1], plan.address.rcvbuf_bytes),
        ("media-rcv-ts-offset", endpoint.stamps[0], plan.media_timestamp_offset),
        ("channel-rcv-ts-offset", endpoint.stamps[1], plan.channel_timestamp_offset),
    ):
        if new is not None and old != new:
            raise Refused(
                "invalid_channel",
                f"{plan.channel}: {key}={new} contradicts the open channel {endpoint.channel}, "
                f"which has {key}={old}",
            )


def _open(
    state: State, plan: SubscriptionPlan, addressing: RecvAddressing | None
) -> Saga[RecvEndpoint]:
    endpoint_id = state.next_id()
    undo = Undo(state.runner)
    try:
        status: int = yield channel_counter(
            CounterType.RECEIVE_CHANNEL, name="rcv-channel", registration_id=endpoint_id,
            channel=plan.channel,
        )
        undo.on_failure(FreeCounter(counter_id=status))
        endpoint = _new_endpoint(state, plan, addressing, endpoint_id, status)
        endpoint.params = RecvEndpointParams(
            id=endpoint_id,
            status_counter_id=status,
            receiver_id=endpoint.receiver_id,
            group_tag=plan.group_tag or 0,
            has_group_tag=plan.group_tag is not None,
            media_timestamp=plan.media_timestamp_offset is not None,
            media_timestamp_offset=plan.media_timestamp_offset or 0,
            channel_timestamp=plan.channel_timestamp_offset is not None,
            channel_timestamp_offset=plan.channel_timestamp_offset or 0,
        )
        yield OpenRecvEndpoint(params=endpoint.params)
        undo.on_failure(RemoveObject(kind=ObjectKind.RECV_ENDPOINT, object_id=endpoint_id))
        if addressing is not None:
            yield from _open_destination(state, endpoint, plan.channel, addressing)
    except Refused:
        undo.roll_back()
        raise
    state.emit(SetCounter(counter_id=status, value=ChannelStatus.ACTIVE))
    state.recv_endpoints[endpoint_id] = endpoint
    note_recv_endpoint(state, endpoint)
    return endpoint


def _new_endpoint(
    state: State, plan: SubscriptionPlan, addressing: RecvAddressing | None, endpoint_id: int,
    status: int,
) -> RecvEndpoint:
    settings, address = state.settings, plan.address
    buffers = (
        settings.sndbuf_bytes if address.sndbuf_bytes is None else address.sndbuf_bytes,
        settings.rcvbuf_bytes if address.rcvbuf_bytes is None else address.rcvbuf_bytes,
    )
    return RecvEndpoint(
        id=endpoint_id,
        key=None if addressing is None else addressing.key,
        channel=plan.channel,
        tag=address.channel_tag,
        status_counter=status,
        receiver_id=state.receiver_id(),
        multicast=addressing is not None and addressing.multicast,
        manual=address.control_mode == "manual",
        buffers=buffers,
        stamps=(plan.media_timestamp_offset, plan.channel_timestamp_offset),
    )


def _open_destination(
    state: State, endpoint: RecvEndpoint, channel: str, addressing: RecvAddressing
) -> Saga[Destination]:
    """Open a socket of an endpoint."""
    destination_id = state.next_id()
    socket = attrs.evolve(addressing.socket, timestamps=endpoint.stamps[0] is not None)
    params = RecvDestinationParams(
        id=destination_id,
        socket=socket,
        control=addressing.control,
        group_control=addressing.group_control,
        multicast=addressing.multicast,
    )
    local: Address = yield AddRecvDestination(endpoint_id=endpoint.id, params=params)
    if addressing.multicast and socket.group is not None:
        local = socket.group            # shown to readers of the counter
    try:
        counter: int = yield local_address_counter(
            name="rcv-local-sockaddr", registration_id=endpoint.id,
            status_counter_id=endpoint.status_counter, address=local,
        )
    except Refused:
        state.emit(
            RemoveRecvDestination(endpoint_id=endpoint.id, destination_id=destination_id)
        )
        raise
    destination = Destination(
        id=destination_id,
        channel=channel,
        address=local,
        name=addressing.control_name,
        control=addressing.control,
        counter_id=counter,
        params=params,
    )
    endpoint.destinations[destination_id] = destination
    note_recv_endpoint(state, endpoint)
    return destination


# ---- interest ------------------------------------------------------------------------------------


def add_interest(
    state: State, endpoint: RecvEndpoint, stream_id: int, session_id: int | None
) -> Saga[None]:
    key = (stream_id, session_id)
    if endpoint.interest.get(key, 0) == 0:
        yield AddInterest(endpoint_id=endpoint.id, stream_id=stream_id, session_id=session_id)
    endpoint.interest[key] = endpoint.interest.get(key, 0) + 1


def remove_interest(
    state: State, endpoint: RecvEndpoint, stream_id: int, session_id: int | None
) -> None:
    key = (stream_id, session_id)
    endpoint.interest[key] -= 1
    if endpoint.interest[key] == 0:
        del endpoint.interest[key]
        state.emit(
            RemoveInterest(endpoint_id=endpoint.id, stream_id=stream_id, session_id=session_id)
        )


# ---- the end -------------------------------------------------------------------------------------


def release_if_unused(state: State, endpoint: RecvEndpoint) -> None:
    """Close an endpoint without subscriptions, after the receiver has released its images."""
    if endpoint.subscriptions or endpoint.held_by or endpoint.state is not EndpointState.OPEN:
        return
    close_endpoint(state, endpoint, ObjectKind.RECV_ENDPOINT)


def on_released(state: State, endpoint_id: int) -> None:
    state.emit(DestroyObject(kind=ObjectKind.RECV_ENDPOINT, object_id=endpoint_id))
    endpoint = state.recv_endpoints.pop(endpoint_id, None)
    if endpoint is None:
        return                          # opened by a command that failed later
    endpoint.leaving.clear()
    erase(state, "recv_endpoint", endpoint_id)
    owned = (destination.counter_id for destination in endpoint.destinations.values())
    free_counters(state, (endpoint.status_counter, *owned))


# ---- destinations --------------------------------------------------------------------------------


def add_destination(state: State, endpoint: RecvEndpoint, channel: str) -> Saga[int]:
    """Add a socket to a manual multi-destination subscription; return its id."""
    if not endpoint.manual:
        raise Refused(
            "invalid_channel",
            f"{endpoint.channel}: destinations can be added only with control-mode=manual",
        )
    plan = destination_plan(parse(channel), channel, subscription=True)
    addressing = yield from recv_addressing(plan, state.settings)
    yield EXCLUSIVE
    if endpoint.state is not EndpointState.OPEN:
        raise Refused("unknown_registration", f"{endpoint.channel} was closed meanwhile")
    buffers = attrs.evolve(
        addressing.socket, sndbuf_bytes=endpoint.buffers[0], rcvbuf_bytes=endpoint.buffers[1]
    )
    destination = yield from _open_destination(
        state, endpoint, channel, attrs.evolve(addressing, socket=buffers)
    )
    if not is_given(endpoint):
        yield from fit(endpoint, destination)
    return destination.id


def remove_destination(state: State, endpoint: RecvEndpoint, destination_id: int) -> Saga[None]:
    """Remove a destination of a subscription. The saga ends when the destination's socket is
    closed, so that another socket can bind its address."""
    yield RemoveRecvDestination(endpoint_id=endpoint.id, destination_id=destination_id)
    destination = endpoint.destinations.pop(destination_id)
    endpoint.buffer_sizes.pop(destination_id, None)
    endpoint.leaving.add(destination_id)
    note_recv_endpoint(state, endpoint)
    if destination.counter_id != NO_COUNTER:
        state.emit(FreeCounter(counter_id=destination.counter_id))
    while destination_id in endpoint.leaving:
        yield UNTIL_RELEASE


def on_destination_released(state: State, endpoint_id: int, destination_id: int) -> None:
    """Close a socket after the receiver has stopped reading it."""
    state.emit(DestroyRecvDestination(endpoint_id=endpoint_id, destination_id=destination_id))
    endpoint = state.recv_endpoints.get(endpoint_id)
    if endpoint is not None:
        endpoint.leaving.discard(destination_id)


def resolve_again(state: State, endpoint: RecvEndpoint) -> Saga[None]:
    """Resolve the host names in ``control=`` again, and use the new address if the address of a
    name has changed."""
    for destination in list(endpoint.destinations.values()):
        if destination.name is None:
            continue
        address = yield from resolve(destination.name)
        if address != destination.control and destination.id in endpoint.destinations:
            destination.control = address
            note_recv_endpoint(state, endpoint)
            state.emit(
                SetRecvControl(
                    endpoint_id=endpoint.id, destination_id=destination.id, control=address
                )
            )
            state.event("resolved", channel=destination.channel, address=str(address))
