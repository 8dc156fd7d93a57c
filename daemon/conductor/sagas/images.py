# SPDX-License-Identifier: Apache-2.0
"""Manage images; an image is a stream that arrives from a sender. The conductor creates an image
when a SETUP arrives. The conductor notifies subscribers of a new image when the image's first frame
arrives. An image ends when the sender ends the stream, or sends nothing for the liveness time-out.
The image then drains: its subscribers read the remaining data. The daemon keeps a drained image's
log for the linger time, and then deletes it."""

from __future__ import annotations

from typing import Final

import attrs

from penstock.core.credits import CAP_CREDITS
from penstock.core.driver_events import ImageDrained, ImageInactive, SecondSource, Setup
from penstock.core.driver_types import (
    ImageEnd,
    ImageParams,
    ObjectKind,
    SlotKind,
    compute_position,
)
from penstock.daemon.conductor.actions import (
    AddImageObject,
    AllocateSlot,
    CreateLog,
    DeleteFile,
    DestroyObject,
    DrainImage,
    ForgetSession,
    FreeCounter,
    FreeSlot,
    RefuseSession,
    RemoveObject,
)
from penstock.daemon.conductor.channel.counters import CounterType, stream_counter
from penstock.daemon.conductor.channel.plans import SubscriptionPlan
from penstock.daemon.conductor.saga import EXCLUSIVE, EXCLUSIVE_LAST, Refused, Saga, Undo
from penstock.daemon.conductor.sagas import congestion, fan_in
from penstock.daemon.conductor.sagas.credit_pools import check_room, publishers
from penstock.daemon.conductor.sagas.freeing import free_counters, free_slot_later
from penstock.daemon.conductor.sagas.image_params import (
    granting,
    image_params,
    log_params,
    receiver_window_of,
)
from penstock.daemon.conductor.sagas.isolating import stated_by, willing
from penstock.daemon.conductor.sagas.joins import report_no_image
from penstock.daemon.conductor.sagas.linking import (
    link_image,
    report_never_shown,
    report_refusal,
    unlink,
    withdraw,
)
from penstock.daemon.conductor.sagas.recv_buffers import follow_window
from penstock.daemon.conductor.sagas.recv_endpoints import release_if_unused
from penstock.daemon.conductor.sagas.retention import detach_groups, drop_log, settle
from penstock.daemon.conductor.sagas.storage import watch
from penstock.daemon.conductor.settings import KIB, MIB, SECOND_NS
from penstock.daemon.conductor.state.machines import IMAGE, EndpointState, ImageState, ImageTrigger
from penstock.daemon.conductor.state.model import (
    Image,
    LogFile,
    RecvEndpoint,
    SubscriberLink,
    Subscription,
)
from penstock.daemon.conductor.state.registry import erase, note_image
from penstock.daemon.conductor.state.state import State

HALF_OPEN_SHARE: Final = 4          # divisor of the storage budget
_SETUP_GROUP: Final = 0x40
_IN_RECEIVER: Final = (ImageState.ACTIVE, ImageState.DRAINING)      # no command may follow later
_MALFORMED: Final = "malformed"
_NO_CREDITS: Final = "not_supported"
_FINAL: Final = (_MALFORMED, _NO_CREDITS)       # codes of which the sender learns
_OUTRUN_QUIET_NS: Final = 60 * SECOND_NS
_OUTRUN_KEPT: Final = 64             # sessions of an endpoint
_MIN_TERM: Final = 64 * KIB
_MAX_TERM: Final = 1024 * MIB
_MIN_MTU: Final = 64
_MAX_MTU: Final = 65504
_POSITIONS: Final = (CounterType.RECEIVER_HIGH_WATER, CounterType.RECEIVER_POSITION)

_REASONS: Final[dict[int, str]] = {
    ImageEnd.END_OF_STREAM: "end_of_stream",
    ImageEnd.TIMEOUT: "timeout",
    ImageEnd.REVOKED: "revoked",
    ImageEnd.NO_SUBSCRIBER: "closed",
    ImageEnd.REJECTED: "rejected",
    ImageEnd.EVICTED: "evicted",
    ImageEnd.OUTRUN: "outrun",
}


def on_setup(state: State, event: Setup) -> Saga[None]:
    """Create an image for a new session of a subscribed stream, or report the reason for a
    refusal."""
    yield EXCLUSIVE_LAST
    endpoint = state.recv_endpoints.get(event.id)
    if endpoint is None or endpoint.state is not EndpointState.OPEN:
        return
    subscriptions = [
        s for s in endpoint.subscriptions.of_stream(event.stream_id)
        if s.wants_session(event.session_id)
    ]
    if (event.stream_id, event.session_id) in endpoint.images:
        _forget(state, endpoint, event)     # this daemon is about to end: the next SETUP counts
        return
    try:
        if not subscriptions:
            raise Refused("unknown_registration", "no subscription wants it")
        subscriptions = willing(subscriptions, stated_by(event))
        _check_setup(state, endpoint, event, subscriptions)
        yield from _create(state, endpoint, event, subscriptions)
    except Refused as refused:
        _forget(state, endpoint, event, refused)
        if subscriptions:
            report_no_image(state, endpoint, event, refused)


def _forget(
    state: State, endpoint: RecvEndpoint, event: Setup, refused: Refused | None = None
) -> None:
    """Let the receiver report the session's next SETUP; send the reason to a sender that can never
    succeed."""
    if refused is not None and refused.code in _FINAL and event.source is not None:
        state.emit(
            RefuseSession(
                endpoint_id=endpoint.id, stream_id=event.stream_id, session_id=event.session_id,
                destination=event.destination, source=event.source, reason=refused.message,
            )
        )
        return
    state.emit(
        ForgetSession(
            endpoint_id=endpoint.id, stream_id=event.stream_id, session_id=event.session_id,
            keep=False,
        )
    )


def on_established(state: State, image_id: int) -> Saga[None]:
    """Show the image to subscribers. Notify the subscribers of a new image. The conductor calls
    this function when the receiver has accepted the image's first frame."""
    yield EXCLUSIVE
    image = state.images.get(image_id)
    if image is None or image.state is not ImageState.ACTIVE or image.established:
        return
    image.established = True
    image.established_ns = state.now_ns
    state.half_open_bytes -= image.log.reserved_bytes
    congestion.start(state, image)
    yield from show(state, image)


def show(state: State, image: Image) -> Saga[None]:
    """Link a new image to each subscription that reads the image's session. Reading starts at the
    image's join position. When all links exist, record this in the journal. If the daemon dies
    before it has written this record, the next daemon creates the missing links."""
    for subscription in image.endpoint.subscriptions.of_stream(image.stream_id):
        if not subscription.wants_session(image.session_id) \
                or subscription.id in image.subscribers:
            continue
        group = state.groups.get(subscription.client.group_id)
        if group is not None and image.id in group.retained:
            continue                    # the image ended before the daemon died
        try:
            yield from link_image(
                state, subscription, image, join_position=image.join_position
            )
        except Refused as refused:
            report_refusal(
                state, f"subscription {subscription.id}", refused, source=image.source
            )
    if not image.subscribers:
        _move(state, image, ImageTrigger.NO_SUBSCRIBER)
        return
    image.shown = True
    note_image(state, image)


def leave_half_open(state: State, endpoint: RecvEndpoint, stream_id: int) -> None:
    """End those images of the stream that have received no frame yet, if no subscription reads
    their session any more."""
    wanting = endpoint.subscriptions.of_stream(stream_id)
    for image in endpoint.images.of_stream(stream_id):
        if not image.established and not any(s.wants_session(image.session_id) for s in wanting):
            image.end_reason = "closed"
            _move(state, image, ImageTrigger.NEVER_ESTABLISHED)


def _check_setup(
    state: State, endpoint: RecvEndpoint, event: Setup, subscriptions: list[Subscription]
) -> None:
    """Check every field, because any host can send a SETUP."""
    length = event.term_length
    if not _MIN_TERM <= length <= _MAX_TERM or length & (length - 1):
        raise Refused(_MALFORMED, f"SETUP states the invalid term length {length}")
    if not _MIN_MTU <= event.mtu <= _MAX_MTU or event.mtu % 32:
        raise Refused(_MALFORMED, f"SETUP states the invalid MTU {event.mtu}")
    _check_mtu(endpoint, event, subscriptions)
    if not 0 <= event.term_offset < length or event.term_offset % 32:
        raise Refused(_MALFORMED, f"SETUP states the invalid term offset {event.term_offset}")
    if (event.active_term_id - event.initial_term_id) & 0xFFFFFFFF >= 2**31:
        raise Refused(
            _MALFORMED,
            f"SETUP states the term id {event.active_term_id}, which lies before the initial term "
            f"id {event.initial_term_id}",
        )
    if event.source is None:
        raise Refused(_MALFORMED, "SETUP without a source address")
    _check_credits(endpoint, event, subscriptions)
    sessions = len(endpoint.images.of_stream(event.stream_id))
    if sessions >= state.settings.stream_session_limit:
        raise Refused(
            "limit", f"stream {event.stream_id} already has {sessions} sessions, which is the limit"
        )


def _check_credits(
    endpoint: RecvEndpoint, event: Setup, subscriptions: list[Subscription]
) -> None:
    """Refuse a sender that a subscription with ps-credits-required cannot hold, and a publisher
    for which a pool has no credit."""
    for subscription in subscriptions:
        plan = subscription.plan
        if plan.credits_required and not event.peer_capabilities & CAP_CREDITS:
            peer = "a plain Aeron publisher" if not event.peer_capabilities else \
                f"its capabilities are {event.peer_capabilities:#x}, as with fc=nak and fc=py:"
            raise Refused(
                _NO_CREDITS,
                f"the subscription with ps-credits={plan.credits} has ps-credits-required=true, "
                f"and the sender does not support credits ({peer}). Leave ps-credits-required "
                "out, or choose another flow control at the sender",
            )
        images = [image for image in endpoint.images.of_stream(event.stream_id)
                  if subscription.wants_session(image.session_id)]
        check_room(subscription, max(len(images), publishers(subscription)))


def _check_mtu(
    endpoint: RecvEndpoint, event: Setup, subscriptions: list[Subscription]
) -> None:
    """Refuse an MTU above the window or the socket's buffer: such a datagram would never arrive."""
    window = receiver_window_of(subscriptions, event.term_length, event.mtu)
    if event.mtu > window:
        raise Refused(
            _MALFORMED,
            f"SETUP states the MTU {event.mtu}, above the receiver window {window}: raise rcv-wnd, "
            "or lower mtu of the publication",
        )
    buffer = endpoint.buffers[1]
    if 0 < buffer < event.mtu:
        raise Refused(
            _MALFORMED,
            f"SETUP states the MTU {event.mtu}, above the socket's receive buffer {buffer}: raise "
            "so-rcvbuf, or lower mtu of the publication",
        )


def _counters_of(plan: SubscriptionPlan) -> list[tuple[CounterType, str]]:
    """Return the kinds of an image's counters, in the order of image_params."""
    kinds = [(kind, "") for kind in (*_POSITIONS, CounterType.NAKS_SENT)]
    chosen = plan.congestion_control
    if chosen.control != "static":
        name = "custom" if chosen.is_custom else chosen.control
        kinds += [(CounterType.CONGESTION, f"rcv-cc-{name}-rtt"),
                  (CounterType.CONGESTION, f"rcv-cc-{name}-wnd")]
    return kinds


def _check_share(state: State, amount: int) -> None:
    """Refuse what would let half-open images hold more than their share of the storage."""
    if state.half_open_bytes + amount > state.storage.budget_bytes // HALF_OPEN_SHARE:
        raise Refused(
            "storage",
            f"sessions that have sent a SETUP but no data occupy {state.half_open_bytes} bytes, "
            f"and may occupy at most 1/{HALF_OPEN_SHARE} of the storage budget: unless this is an "
            "attack, raise storage.budget",
        )


def _image_plan(
    state: State, event: Setup, subscriptions: list[Subscription]
) -> SubscriptionPlan:
    """Return the first subscription's plan, completed by the values of the arriving stream."""
    first = subscriptions[0].plan
    chosen = congestion.choose(
        first, event.stream_id, state.settings, session_id=event.session_id,
        term_length=event.term_length,
    )
    return attrs.evolve(
        first, receiver_window=receiver_window_of(subscriptions, event.term_length, event.mtu),
        congestion_control=chosen,
    )


def _create(
    state: State, endpoint: RecvEndpoint, event: Setup, subscriptions: list[Subscription]
) -> Saga[None]:
    first = subscriptions[0]
    plan = _image_plan(state, event, subscriptions)
    image_id = state.next_id()
    start = compute_position(
        event.active_term_id, event.term_offset, event.initial_term_id, event.term_length
    )
    path = f"{state.settings.directory}/images/{image_id}.logbuffer"
    log = state.new_image_log(path, event.term_length, start, plan.receiver_window)
    amount = log.reserved_bytes
    _check_share(state, amount)
    state.storage.take(amount, f"the log of an image with term length {event.term_length}")
    group = plan.group
    if group is None:
        group = endpoint.multicast or bool(event.flags & _SETUP_GROUP)
    undo = Undo(state.runner)
    try:
        yield from follow_window(state, endpoint, plan.receiver_window)
        slot: int = yield AllocateSlot(kind=SlotKind.IMAGE, object_id=image_id)
        undo.on_failure(FreeSlot(kind=SlotKind.IMAGE, index=slot))
        counters: list[int] = []
        for kind, name in _counters_of(plan):
            counter_id: int = yield stream_counter(
                kind, key_id=image_id, owner_id=first.client.id, session_id=event.session_id,
                stream_id=event.stream_id, channel=plan.channel,
                value=start if kind in _POSITIONS else 0, name=name,
            )
            undo.on_failure(FreeCounter(counter_id=counter_id))
            counters.append(counter_id)
        yield CreateLog(
            params=log_params(state, endpoint, event, plan, log, image_id, group=group)
        )
        undo.on_failure(DeleteFile(path=path))
        params = image_params(endpoint, event, plan, image_id, path, slot, counters,
                              reserved=log.notified_position, group=group)
        image = _image_of(endpoint, event, plan, params, counters, log, start)
        note_image(state, image)        # the image's first status message lets the sender send
        yield AddImageObject(params=granting(params, subscriptions))
    except Refused:
        erase(state, "image", image_id)
        undo.roll_back()
        state.storage.release(amount)
        raise
    state.half_open_bytes += amount
    state.images[image_id] = image
    endpoint.images[(event.stream_id, event.session_id)] = image
    endpoint.held_by += 1
    watch(state, image)


def _image_of(
    endpoint: RecvEndpoint, event: Setup, plan: SubscriptionPlan, params: ImageParams,
    counters: list[int], log: LogFile, start: int,
) -> Image:
    return Image(
        id=params.id,
        params=params,
        endpoint=endpoint,
        stream_id=event.stream_id,
        session_id=event.session_id,
        source=params.source,
        slot=params.slot,
        counters=counters,
        log=log,
        rejoin=plan.rejoin,
        join_position=start,
        join_ordinal=event.peer_ordinal if plan.reliable else -1,
        initial_term_id=event.initial_term_id,
        mtu=event.mtu,
        sender_flow_control=event.peer_flow_control,
        sender_group_tag=event.peer_group_tag,
        sender_policy=event.peer_policy,
        sender_depth_bytes=event.peer_depth_bytes,
        sender_depth_messages=event.peer_depth_messages,
        sender_credit_weight=event.peer_credit_weight,
        sender_priority=event.peer_priority,
        relay_path=event.relay_path,
    )


def on_second_source(state: State, event: SecondSource) -> None:
    """Report that datagrams of an image's session also arrive from a second address. The receiver
    drops the datagrams from the second address, because it follows only one source. The conductor
    reports only one such address until the receiver follows a new source."""
    image = state.images.get(event.id)
    if image is None:
        return
    state.error(
        "second source", event.source or "",
        f"session {image.session_id} of stream {image.stream_id} on {image.endpoint.channel}: "
        f"{event.source} sends datagrams of this session too; the receiver follows another source "
        "and drops them (foreign_datagrams of the image counts them). Stop one of the two "
        "senders, or give each sender its own session id.",
    )
    state.event(
        "second_source", image_id=image.id, session_id=image.session_id,
        stream_id=image.stream_id, address=str(event.source),
    )


# ---- the end -------------------------------------------------------------------------------------


def on_inactive(state: State, event: ImageInactive) -> None:
    """Process the receiver's report that the sender ended the stream, revoked it, or has been
    silent for too long."""
    image = state.images.get(event.id)
    if image is None:
        return
    image.end_position, image.end_ordinal = event.position, event.messages
    if image.state is ImageState.ACTIVE:
        image.end_reason = _REASONS.get(event.reason, "closed")
        if event.reason == ImageEnd.OUTRUN and image.established:
            _report_outrun(state, image)
    if not image.established:
        _move(state, image, ImageTrigger.NEVER_ESTABLISHED)     # no subscriber has seen it
    elif event.reason == ImageEnd.REVOKED:
        _move(state, image, ImageTrigger.REVOKED)
    else:
        _move(state, image, ImageTrigger.INACTIVE)


def _report_outrun(state: State, image: Image) -> None:
    """Report a reader that is slower than the lowest rate: once, and again after it has kept up for
    a minute."""
    notified = image.endpoint.outrun
    key = image.stream_id, image.session_id
    last_ns = notified.pop(key, None)
    notified[key] = state.now_ns
    if len(notified) > _OUTRUN_KEPT:
        del notified[next(iter(notified))]
    if last_ns is not None and state.now_ns - last_ns < _OUTRUN_QUIET_NS:
        return
    clients = sorted(f"{link.subscription.client.id}" for link in image.subscribers.values())
    state.error(
        "outrun", image.source,
        f"session {image.session_id} of stream {image.stream_id} from {image.source}: a "
        f"reader of client {', '.join(clients)} is slower than the least rate of fc=nak; it "
        "missed messages and joins again at the present position: read faster or use fc=min",
    )
    state.event(
        "reader_outrun", image_id=image.id, session_id=image.session_id,
        stream_id=image.stream_id, source=str(image.source), clients=clients,
    )


def on_drained(state: State, event: ImageDrained) -> None:
    """Process the receiver's report that all subscribers have read all data of an ended image."""
    image = state.images.get(event.id)
    if image is not None:
        image.end_position, image.end_ordinal = event.position, event.messages
        _move(state, image, ImageTrigger.DRAINED)


def leave_image(state: State, link: SubscriberLink) -> None:
    """Remove a subscriber from an image. If the image has no other subscriber, end the image."""
    image = link.source
    assert isinstance(image, Image)
    unlink(state, link, source_alive=image.state in _IN_RECEIVER)
    if image.subscribers:
        return
    if image.state is ImageState.ACTIVE:
        image.end_reason = "closed"
    _move(state, image, ImageTrigger.NO_SUBSCRIBER)
    if image.state is ImageState.LINGER:
        _move(state, image, ImageTrigger.LINGER_ELAPSED)


def _move(state: State, image: Image, trigger: ImageTrigger) -> None:
    entered = IMAGE.get((image.state, trigger))
    if entered is None:
        return
    image.state = entered
    if trigger is ImageTrigger.NEVER_ESTABLISHED:
        state.half_open_bytes -= image.log.reserved_bytes
        report_never_shown(state, image)
    state.event("image_state", image_id=image.id, state=entered.value, cause=trigger.value)
    detach_groups(state, image)
    for link in image.subscribers.values():
        fan_in.divide(state, link.subscription)
    if entered is ImageState.DRAINING:
        state.emit(DrainImage(image_id=image.id))
    elif entered is ImageState.LINGER:
        _linger(state, image)
    elif entered is ImageState.DONE:
        _finish(state, image)


def _linger(state: State, image: Image) -> None:
    """Remove the image from the receiver and notify subscribers, which can still read the log."""
    erase(state, "image", image.id)
    image.endpoint.images.pop((image.stream_id, image.session_id), None)
    keep = not image.rejoin and image.end_reason != "end_of_stream"
    for link in image.subscribers.values():
        withdraw(state, link, image.end_reason)
    state.emit(RemoveObject(kind=ObjectKind.IMAGE, object_id=image.id, keep_session=keep))
    # An outrun image was read to its end, and another image is about to follow.
    if not image.subscribers or image.end_reason == "outrun":
        _move(state, image, ImageTrigger.LINGER_ELAPSED)
        return
    state.timers.at(
        state.now_ns + state.settings.image_linger_ns,
        lambda: _move(state, image, ImageTrigger.LINGER_ELAPSED),
    )


def _finish(state: State, image: Image) -> None:
    """Delete the log, after the receiver has released it too."""
    if image.state is not ImageState.DONE or not image.released:
        return
    for link in list(image.subscribers.values()):
        unlink(state, link, source_alive=False)
    state.images.pop(image.id, None)
    drop_log(state, image.id, image.log)


def on_released(state: State, image_id: int) -> None:
    """Free an image that the receiver has released."""
    state.emit(DestroyObject(kind=ObjectKind.IMAGE, object_id=image_id))
    image = state.images.get(image_id)
    if image is None:
        return
    image.released = True
    settle(state, image)
    free_counters(state, image.counters)
    free_slot_later(state, SlotKind.IMAGE, image.slot)
    image.endpoint.held_by -= 1
    release_if_unused(state, image.endpoint)
    _finish(state, image)
