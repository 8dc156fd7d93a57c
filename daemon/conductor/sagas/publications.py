# SPDX-License-Identifier: Apache-2.0
"""Create a publication, or share an open publication with another client. After the last client of
a publication has left, the daemon sends the remaining data, keeps the publication for the linger
time, and deletes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from penstock.config.protocol.control import AddPublication, PublicationReady
from penstock.config.uri import ChannelUri
from penstock.core.driver_types import (
    NO_COUNTER,
    PRIORITY_AUTO,
    PRIORITY_BACKGROUND,
    PRIORITY_NONE,
    LogParams,
    ObjectKind,
    Policy,
    PublicationParams,
    SlotKind,
    compute_position,
)
from penstock.daemon.conductor.actions import (
    AddPublicationClient,
    AddPublicationObject,
    AllocateSlot,
    CreateLog,
    DeleteFile,
    DestroyObject,
    DrainPublication,
    FreeCounter,
    FreeSlot,
    RemoveObject,
    RemovePublicationClient,
    RevokePublication,
    UnblockPublication,
)
from penstock.daemon.conductor.channel import rules
from penstock.daemon.conductor.channel.counters import CounterType, stream_counter
from penstock.daemon.conductor.channel.lookup import (
    SendAddressing,
    check_interface,
    send_addressing,
)
from penstock.daemon.conductor.channel.plans import PublicationPlan, parse, publication_plan
from penstock.daemon.conductor.saga import EXCLUSIVE, Refused, Saga, Undo
from penstock.daemon.conductor.sagas import custom
from penstock.daemon.conductor.sagas.freeing import free_counters, free_slot_later
from penstock.daemon.conductor.sagas.linking import (
    link_publication,
    report_refusal,
    unlink,
    wants_publication,
    withdraw,
)
from penstock.daemon.conductor.sagas.pressure_warnings import check_settings
from penstock.daemon.conductor.sagas.retention import detach_groups, drop_log, settle
from penstock.daemon.conductor.sagas.send_endpoints import acquire, release_if_unused
from penstock.daemon.conductor.sagas.storage import watch
from penstock.daemon.conductor.settings import MIB, SECOND_NS
from penstock.daemon.conductor.state.machines import (
    PUBLICATION,
    PublicationState,
    PublicationTrigger,
)
from penstock.daemon.conductor.state.model import Client, Publication, SendEndpoint
from penstock.daemon.conductor.state.registry import erase, note_publication
from penstock.daemon.conductor.state.state import State, first_terms

# Parameters that a publication may state if it joins an existing one; they must be equal.
_COMPARED: Final[dict[str, Callable[[PublicationPlan], Any]]] = {
    "session-id": lambda plan: plan.session_id,
    "mtu": lambda plan: plan.mtu,
    "term-length": lambda plan: plan.term_length,
    "init-term-id": lambda plan: plan.initial_term_id,
    "term-id": lambda plan: plan.term_id,
    "term-offset": lambda plan: plan.term_offset,
    "linger": lambda plan: plan.linger_ns,
    "pub-wnd": lambda plan: plan.window_bytes,
    "max-resend": lambda plan: plan.max_resend,
    "eos": lambda plan: plan.signal_eos,
    "ssc": lambda plan: plan.spies_simulate_connection,
    "sparse": lambda plan: plan.sparse,
    "channel-snd-ts-offset": lambda plan: plan.send_timestamp_offset,
    "fc": lambda plan: plan.flow_control,
    "ps-rate": lambda plan: plan.rate,
    "ps-policy": lambda plan: plan.policy,
    "ps-depth": lambda plan: (plan.depth_bytes or plan.window_bytes, plan.depth_messages,
                              plan.reader_depth_messages),
    "ps-fanout": lambda plan: plan.fanout,
    "ps-retention": lambda plan: plan.retention_bytes,
    "ps-retention-time": lambda plan: plan.retention_ns,
    "ps-low-watermark": lambda plan: plan.low_watermark_bytes,
    "ps-priority": lambda plan: plan.priority,
    "ps-auto-priority": lambda plan: plan.auto_priority,
    "ps-never-throttle": lambda plan: plan.never_throttle,
}


def max_message_bytes(term_length: int) -> int:
    return min(term_length // 8, 16 * MIB)


def add_publication(
    state: State, client: Client, message: AddPublication
) -> Saga[PublicationReady]:
    """Answer AddPublication."""
    if message.relay_path and not message.exclusive:
        raise Refused(
            "invalid_channel",
            f"{message.channel}: a relay can only use an exclusive publication",
        )
    stated = parse(message.channel)
    parsed = rules.apply(stated, message.stream_id, state.settings, publication=True)
    plan = attrs.evolve(
        publication_plan(parsed, message.channel, state.settings),
        given=frozenset(stated.given()),        # values of a rule contradict no channel
    )
    addressing: SendAddressing | None = None
    by_tag = not (plan.address.endpoint or plan.address.control or plan.address.control_mode)
    if not plan.is_ipc and not by_tag:
        addressing = yield from send_addressing(plan.address, state.settings)
    elif by_tag:
        yield from check_interface(plan.address)
    strategies = yield from custom.make(plan, state.settings)
    yield EXCLUSIVE
    if not client.alive:
        raise Refused("not_leased", "the client has gone")
    plan = _with_session_of_tag(state, plan)
    endpoint: SendEndpoint | None = None
    if not plan.is_ipc:
        endpoint = yield from acquire(state, plan.address, addressing)
    try:
        publication = None
        if not message.exclusive:
            publication = _find_shared(state, endpoint, message.stream_id)
        if publication is None:
            publication = yield from _create(
                state, client, plan, endpoint, message, strategies, stated
            )
        else:
            _check_joined(publication, plan)
        registration_id = state.next_id() if publication.links else publication.id
        yield from _attach(state, client, publication, registration_id)
    finally:
        if endpoint is not None:
            release_if_unused(state, endpoint)
    return PublicationReady(
        registration_id=registration_id,
        original_id=publication.id,
        session_id=publication.session_id,
        stream_id=publication.stream_id,
        log_path=publication.log.path,
        publication_slot=publication.slot,
        limit_counter_id=publication.limit_counter,
        channel_status_id=NO_COUNTER if endpoint is None else endpoint.status_counter,
        max_message_bytes=max_message_bytes(publication.term_length),
        exclusive=publication.exclusive,
        shared_log=not publication.params.exclusive,
    )


def _owns_tail(plan: PublicationPlan, message: AddPublication) -> bool:
    """Whether the one publisher moves the tail alone.  If the policy drops, the sender appends
    too (docs/decisions/0190), so the log is that of a shared publication."""
    return message.exclusive and not plan.policy.startswith("drop_")


def _with_session_of_tag(state: State, plan: PublicationPlan) -> PublicationPlan:
    """``session-id=tag:N`` takes session, MTU and term length from the publication tagged N."""
    if plan.session_tag is None:
        return plan
    for other in state.publications.values():
        if other.plan.entity_tag == plan.session_tag and other.state is PublicationState.ACTIVE:
            largest = other.term_length if plan.is_ipc else other.term_length // 2
            return attrs.evolve(
                plan,
                session_id=other.session_id,
                mtu=other.plan.mtu,
                term_length=other.term_length,
                window_bytes=min(plan.window_bytes, largest),
                given=plan.given | {"session-id"},
            )
    raise Refused(
        "invalid_channel",
        f"{plan.channel}: no publication has the entity tag {plan.session_tag}",
    )


def _find_shared(
    state: State, endpoint: SendEndpoint | None, stream_id: int
) -> Publication | None:
    for publication in state.publications.of_stream(stream_id):
        if (
            publication.endpoint is endpoint
            and not publication.exclusive
            and publication.state is PublicationState.ACTIVE
        ):
            return publication
    return None


def _check_joined(publication: Publication, plan: PublicationPlan) -> None:
    for key, read in _COMPARED.items():
        if key not in plan.given:
            continue
        new = read(plan)
        old = publication.session_id if key == "session-id" else read(publication.plan)
        if old != new:
            raise Refused(
                "invalid_channel",
                f"{plan.channel}: {key}={new} contradicts the open publication of stream "
                f"{publication.stream_id}, which has {key}={old}; use the same value or an "
                "exclusive publication",
            )


def _new_session(
    state: State, plan: PublicationPlan, endpoint: SendEndpoint | None, stream_id: int
) -> int:
    used = {
        p.session_id
        for p in state.publications.of_stream(stream_id)
        if p.endpoint is endpoint and p.state is not PublicationState.DONE
    }
    if plan.session_id is not None:
        if plan.session_id in used:
            raise Refused(
                "invalid_channel",
                f"{plan.channel}: session-id={plan.session_id} is in use on stream {stream_id} of "
                "this channel, perhaps by a closed publication that still lingers",
            )
        return plan.session_id
    low, high = state.settings.reserved_session_low, state.settings.reserved_session_high
    candidate = state.next_session
    while low <= candidate <= high or candidate in used:
        candidate = high + 1 if low <= candidate <= high else _next_session(candidate)
    state.next_session = _next_session(candidate)
    return candidate


def _next_session(session_id: int) -> int:
    return session_id + 1 if session_id < 2**31 - 1 else -(2**31)


def _create(
    state: State, client: Client, plan: PublicationPlan, endpoint: SendEndpoint | None,
    message: AddPublication, strategies: Mapping[str, Any], stated: ChannelUri,
) -> Saga[Publication]:
    """Make a new publication with its storage, counters and slot."""
    choice = rules.choose(
        plan.flow_control, plan.channel, state.settings,
        group=endpoint is not None and endpoint.group, ipc=plan.is_ipc,
    )
    session_id = _new_session(state, plan, endpoint, message.stream_id)
    publication_id = state.next_id()
    initial = plan.initial_term_id
    if initial is None:
        initial = state.rng.randrange(-(2**31), 2**31)
    term_id = initial if plan.term_id is None else plan.term_id
    offset = plan.term_offset or 0
    start = compute_position(term_id, offset, initial, plan.term_length)
    amount = state.log_bytes(plan.term_length, start)
    state.storage.take(amount, f"the log of a publication with term-length={plan.term_length}")
    path = f"{state.settings.directory}/publications/{publication_id}.logbuffer"
    undo = Undo(state.runner)
    try:
        slot: int = yield AllocateSlot(kind=SlotKind.PUBLICATION, object_id=publication_id)
        undo.on_failure(FreeSlot(kind=SlotKind.PUBLICATION, index=slot))
        counters = yield from _counters(
            state, undo, client, plan, publication_id, session_id, message, start
        )
        yield CreateLog(
            params=_log_params(
                state, plan, endpoint, message, path=path, publication_id=publication_id,
                session_id=session_id, initial=initial, term_id=term_id, offset=offset,
            )
        )
        undo.on_failure(DeleteFile(path=path))
        log = state.new_log(path, plan.term_length, start)
        strategy = strategies.get(choice.strategy)
        params = attrs.evolve(
            _params(plan, choice, endpoint, message, publication_id, slot, counters, log),
            fc_on_late=rules.on_late(stated, message.stream_id, state.settings, strategy),
        )
        yield AddPublicationObject(params=params, strategy=strategy)
    except Refused:
        undo.roll_back()
        state.storage.release(amount)
        raise
    publication = Publication(
        id=publication_id,
        plan=plan,
        params=params,
        endpoint=endpoint,
        stream_id=message.stream_id,
        session_id=session_id,
        initial_term_id=initial,
        start_position=start,
        exclusive=message.exclusive,
        slot=slot,
        counters=list(counters.values()),
        limit_counter=counters[CounterType.PUBLISHER_LIMIT],
        log=log,
    )
    state.publications[publication_id] = publication
    check_settings(state, publication)
    if endpoint is not None:
        endpoint.publications.add(publication_id)
    custom.start(state, publication)
    watch(state, publication)
    return publication


def _counters(
    state: State, undo: Undo, client: Client, plan: PublicationPlan, publication_id: int,
    session_id: int, message: AddPublication, start: int,
) -> Saga[dict[CounterType, int]]:
    kinds = [CounterType.PUBLISHER_POSITION, CounterType.PUBLISHER_LIMIT]
    if not plan.is_ipc:
        kinds += [
            CounterType.SENDER_POSITION, CounterType.SENDER_LIMIT,
            CounterType.BACK_PRESSURE_EVENTS, CounterType.NAKS_RECEIVED,
            CounterType.FLOW_CONTROL_RECEIVERS,
        ]
    from_zero = (
        CounterType.BACK_PRESSURE_EVENTS, CounterType.NAKS_RECEIVED,
        CounterType.FLOW_CONTROL_RECEIVERS,
    )
    position_name = f"pub-pos ({'exclusive' if message.exclusive else 'concurrent'})"
    counters: dict[CounterType, int] = {}
    for kind in kinds:
        counter_id: int = yield stream_counter(
            kind, key_id=publication_id, owner_id=client.id, session_id=session_id,
            stream_id=message.stream_id, channel=plan.channel,
            value=0 if kind in from_zero else start,
            name=position_name if kind is CounterType.PUBLISHER_POSITION else "",
        )
        undo.on_failure(FreeCounter(counter_id=counter_id))
        counters[kind] = counter_id
    return counters


def _log_params(
    state: State, plan: PublicationPlan, endpoint: SendEndpoint | None, message: AddPublication, *,
    path: str, publication_id: int, session_id: int, initial: int, term_id: int, offset: int,
) -> LogParams:
    buffers = (0, 0) if endpoint is None else endpoint.buffers
    return LogParams(
        path=path,
        correlation_id=publication_id,
        session_id=session_id,
        stream_id=message.stream_id,
        initial_term_id=initial,
        term_id=term_id,
        term_offset=offset,
        term_length=plan.term_length,
        mtu=plan.mtu,
        page_size=state.settings.page_size,
        publication_window_bytes=plan.window_bytes,
        sndbuf_bytes=buffers[0],
        rcvbuf_bytes=buffers[1],
        max_resend=plan.max_resend,
        entity_tag=plan.entity_tag,
        linger_timeout_ns=plan.linger_ns,
        untethered_window_limit_timeout_ns=plan.tethering.window_limit_timeout_ns,
        untethered_linger_timeout_ns=plan.tethering.linger_timeout_ns,
        untethered_resting_timeout_ns=plan.tethering.resting_timeout_ns,
        group=endpoint is not None and endpoint.group,
        sparse=plan.sparse,
        signal_eos=plan.signal_eos,
        spies_simulate_connection=plan.spies_simulate_connection,
        type=3 if _owns_tail(plan, message) else 0,
        file_mode=state.settings.file_mode,
        reserve_terms=first_terms(plan.term_length, offset),
    )


def _params(
    plan: PublicationPlan, choice: rules.Choice, endpoint: SendEndpoint | None,
    message: AddPublication, publication_id: int, slot: int, counters: dict[CounterType, int],
    log: Any,
) -> PublicationParams:
    group = endpoint is not None and endpoint.group
    return PublicationParams(
        id=publication_id,
        log_path=log.path,
        endpoint_id=0 if endpoint is None else endpoint.id,
        slot=slot,
        publisher_limit_counter_id=counters[CounterType.PUBLISHER_LIMIT],
        publisher_position_counter_id=counters[CounterType.PUBLISHER_POSITION],
        sender_position_counter_id=counters.get(CounterType.SENDER_POSITION, NO_COUNTER),
        sender_limit_counter_id=counters.get(CounterType.SENDER_LIMIT, NO_COUNTER),
        back_pressure_counter_id=counters.get(CounterType.BACK_PRESSURE_EVENTS, NO_COUNTER),
        naks_counter_id=counters.get(CounterType.NAKS_RECEIVED, NO_COUNTER),
        receivers_counter_id=counters.get(CounterType.FLOW_CONTROL_RECEIVERS, NO_COUNTER),
        flow_control=choice.kind,
        strategy=choice.strategy,
        fc_receiver_timeout_ns=choice.receiver_timeout_ns,
        fc_group_tag=choice.group_tag,
        fc_group_min_size=choice.group_min_size,
        retransmit_window_multiple=choice.retransmit_window_multiple,
        rate_bytes_per_s=plan.rate.bytes_per_s,
        rate_messages_per_s=plan.rate.messages_per_s,
        window_bytes=plan.window_bytes,
        policy=Policy[plan.policy.upper()] if plan.policy else Policy.NONE,
        low_watermark_bytes=plan.low_watermark_bytes,
        depth_messages=plan.depth_messages,
        low_watermark_messages=plan.low_watermark_messages,
        depth_bytes=plan.depth_bytes,
        reader_depth_messages=plan.reader_depth_messages,
        retention_bytes=plan.retention_bytes,
        retention_ns=plan.retention_ns,
        priority=_priority(plan, relayed=bool(message.relay_path)),
        never_throttle=plan.never_throttle,
        max_resend=plan.max_resend,
        ttl=0 if endpoint is None else endpoint.ttl,
        reserved_position=log.reserved_position,
        untethered_window_limit_timeout_ns=plan.tethering.window_limit_timeout_ns,
        untethered_linger_timeout_ns=plan.tethering.linger_timeout_ns,
        untethered_resting_timeout_ns=plan.tethering.resting_timeout_ns,
        exclusive=_owns_tail(plan, message),
        group=group,
        spies_simulate_connection=plan.spies_simulate_connection,
        signal_eos=plan.signal_eos,
        channel_timestamp=plan.send_timestamp_offset is not None,
        channel_timestamp_offset=plan.send_timestamp_offset or 0,
        relay_path=tuple(message.relay_path),
        credit_weight=plan.credit_weight,
    )


def _priority(plan: PublicationPlan, *, relayed: bool) -> int:
    if plan.priority is not None:
        return plan.priority
    if relayed:
        return PRIORITY_BACKGROUND
    return PRIORITY_AUTO if plan.auto_priority else PRIORITY_NONE


def _attach(
    state: State, client: Client, publication: Publication, registration_id: int
) -> Saga[None]:
    """Link a client to a publication, and waiting local subscribers to a new publication."""
    is_new = not publication.links
    if client not in publication.links.values():
        try:
            yield AddPublicationClient(publication_id=publication.id, client_slot=client.slot)
        except Refused:
            if is_new:
                _let_go(state, publication)
            raise
    publication.links[registration_id] = client
    client.publications[registration_id] = publication
    note_publication(state, publication)
    if is_new:
        state.event(
            "publication_added", publication_id=publication.id, stream_id=publication.stream_id,
            session_id=publication.session_id, channel=publication.plan.channel,
        )
        for subscription in state.subscriptions.of_stream(publication.stream_id):
            if wants_publication(subscription, publication):
                yield from link_quietly(state, subscription, publication)


def link_quietly(state: State, subscription: Any, publication: Publication) -> Saga[None]:
    """Link a subscription to a local publication. No client waits for the answer. If the conductor
    refuses the link, it therefore reports the refusal in the error log."""
    try:
        yield from link_publication(state, subscription, publication)
    except Refused as refused:
        report_refusal(state, f"subscription {subscription.id}", refused)


# ---- the end -------------------------------------------------------------------------------------


def detach(
    state: State, client: Client, registration_id: int, *, revoke: bool = False, died: bool = False
) -> None:
    """Remove one client's registration of a publication. If the client died, immediately replace
    its claimed and uncommitted messages by padding."""
    publication = client.publications.pop(registration_id)
    del publication.links[registration_id]
    note_publication(state, publication)
    if died:
        state.emit(UnblockPublication(publication_id=publication.id, client_slot=client.slot))
    if client not in publication.links.values():
        state.emit(
            RemovePublicationClient(publication_id=publication.id, client_slot=client.slot)
        )
    if revoke and publication.exclusive:
        state.emit(RevokePublication(publication_id=publication.id))
        publication.end_reason = "revoked"
        _move(state, publication, PublicationTrigger.REVOKED)
    elif not publication.links:
        _move(state, publication, PublicationTrigger.LAST_CLIENT_LEFT)


def orphan(state: State, publication: Publication) -> None:
    """Drain and end an adopted publication that has no clients."""
    _move(state, publication, PublicationTrigger.LAST_CLIENT_LEFT)


def on_drained(state: State, publication_id: int) -> None:
    publication = state.publications.get(publication_id)
    if publication is not None:
        _move(state, publication, PublicationTrigger.DRAINED)


def on_end_confirmed(state: State, publication_id: int) -> None:
    """End the linger time. The conductor calls this function when the only receiver of a
    publication has confirmed all data."""
    publication = state.publications.get(publication_id)
    if publication is not None:
        publication.end_confirmed = True
        note_publication(state, publication)
        if publication.state is PublicationState.LINGER:
            _move(state, publication, PublicationTrigger.END_CONFIRMED)


def _move(state: State, publication: Publication, trigger: PublicationTrigger) -> None:
    entered = PUBLICATION.get((publication.state, trigger))
    if entered is None:
        return
    publication.state = entered
    note_publication(state, publication)
    state.event(
        "publication_state", publication_id=publication.id, state=entered.value,
        cause=trigger.value,
    )
    detach_groups(state, publication)
    if entered is PublicationState.DRAINING:
        state.emit(DrainPublication(publication_id=publication.id))
    elif entered is PublicationState.LINGER:
        _linger(state, publication)
    elif entered is PublicationState.CLOSING:
        _let_go(state, publication)


def _linger(state: State, publication: Publication) -> None:
    for link in list(publication.subscribers.values()):
        withdraw(state, link, publication.end_reason)
        unlink(state, link)
    if publication.end_confirmed:
        _move(state, publication, PublicationTrigger.END_CONFIRMED)
        return
    linger_ns = publication.plan.linger_ns
    if publication.endpoint is None:
        linger_ns = min(linger_ns, SECOND_NS)
    state.timers.at(
        state.now_ns + linger_ns,
        lambda: _move(state, publication, PublicationTrigger.LINGER_ELAPSED),
    )


def _let_go(state: State, publication: Publication) -> None:
    publication.state = PublicationState.CLOSING
    state.emit(RemoveObject(kind=ObjectKind.PUBLICATION, object_id=publication.id))


def on_released(state: State, publication_id: int) -> None:
    """Free all resources of a publication that the sender has released."""
    state.emit(DestroyObject(kind=ObjectKind.PUBLICATION, object_id=publication_id))
    publication = state.publications.pop(publication_id, None)
    if publication is None:
        return
    publication.state = PublicationState.DONE
    settle(state, publication)
    erase(state, "publication", publication_id)
    drop_log(state, publication_id, publication.log)
    free_counters(state, publication.counters)
    free_slot_later(state, SlotKind.PUBLICATION, publication.slot)
    if publication.endpoint is not None:
        publication.endpoint.publications.discard(publication_id)
        release_if_unused(state, publication.endpoint)
