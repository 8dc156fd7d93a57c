# SPDX-License-Identifier: Apache-2.0
"""Link subscriptions to images, and to local publications (IPC and spies).

Each link of a subscription has a position counter and a slot. If a link ends while its client is
alive, the daemon frees the link's counter and slot only after the image linger time. The reason is
that the client may write to the counter and slot until it has read the notice that the link has
ended.
"""

from __future__ import annotations

from penstock.config.protocol.control import ImageAvailable, ImageUnavailable
from penstock.core.driver_types import Address, SlotKind, SubscriberParams
from penstock.daemon.conductor.actions import (
    AddImageSubscriber,
    AddPublicationSubscriber,
    AllocateCounter,
    AllocateSlot,
    FreeCounter,
    FreeSlot,
    GetImageJoinPosition,
    GetPublicationStatus,
    OldestPosition,
    ReadCounter,
    RemoveImageSubscriber,
    RemovePublicationSubscriber,
)
from penstock.daemon.conductor.channel.counters import CounterType, stream_counter
from penstock.daemon.conductor.saga import Refused, Saga, Undo
from penstock.daemon.conductor.sagas import credit_pools, fan_in
from penstock.daemon.conductor.sagas.isolating import isolation_of
from penstock.daemon.conductor.sagas.lost_credits import watch_losses
from penstock.daemon.conductor.settings import SECOND_NS
from penstock.daemon.conductor.state.machines import PublicationState
from penstock.daemon.conductor.state.model import (
    Image,
    Joins,
    Publication,
    SubscriberLink,
    Subscription,
)
from penstock.daemon.conductor.state.registry import erase, note_link
from penstock.daemon.conductor.state.state import State


def wants_publication(subscription: Subscription, publication: Publication) -> bool:
    """Return whether the subscription reads the publication locally: both use IPC, or the
    subscription is a spy on the publication."""
    if publication.stream_id != subscription.stream_id:
        return False
    if not subscription.wants_session(publication.session_id):
        return False
    if publication.state not in (PublicationState.ACTIVE, PublicationState.DRAINING):
        return False
    endpoint = publication.endpoint
    if subscription.plan.kind == "ipc":
        return endpoint is None
    if subscription.plan.kind != "spy" or endpoint is None:
        return False
    if subscription.spy_key is not None and endpoint.key == subscription.spy_key:
        return True
    return subscription.spy_tag is not None and endpoint.tag == subscription.spy_tag


def link_publication(
    state: State, subscription: Subscription, publication: Publication
) -> Saga[None]:
    """Link a subscription to a local publication; the subscription reads this publication's log
    directly."""
    status = yield GetPublicationStatus(publication_id=publication.id)
    position: int = status.consumer_position
    if subscription.joins is Joins.NEWEST:
        position = status.producer_position
    elif subscription.joins is Joins.OLDEST:
        position = yield OldestPosition(
            slot=publication.slot, start_position=publication.start_position,
            consumer_position=position, term_length=publication.term_length,
        )
        # Released terms have no memory. While a release is in progress, the subscription starts at
        # the end.
        held = publication.log.kept_position
        releasing = publication.log.giving_up
        position = status.consumer_position if releasing else max(position, held)
    link, params = yield from _make_link(
        state, subscription, publication, publication.session_id, position
    )
    try:
        yield AddPublicationSubscriber(publication_id=publication.id, params=params)
    except Refused:
        _free_link(state, link)
        raise
    publication.subscribers[subscription.id] = link
    subscription.links[publication.id] = link
    note_link(state, link)
    credit_pools.watch(state, subscription)
    watch_losses(state, subscription)
    announce(state, link, position)


def link_image(
    state: State, subscription: Subscription, image: Image, *, join_position: int | None = None
) -> Saga[None]:
    """Link a subscription to a network image. A subscription begins to read an image at its join
    position."""
    position = join_position
    if position is None:
        position = yield GetImageJoinPosition(image_id=image.id)
        if subscription.joins is Joins.NEWEST:
            position = yield ReadCounter(counter_id=image.params.position_counter_id)
    assert position is not None
    link, params = yield from _make_link(state, subscription, image, image.session_id, position)
    try:
        yield AddImageSubscriber(image_id=image.id, params=params)
    except Refused:
        _free_link(state, link)
        raise
    image.subscribers[subscription.id] = link
    subscription.links[image.id] = link
    note_link(state, link)
    credit_pools.watch(state, subscription)
    watch_losses(state, subscription)
    fan_in.divide(state, subscription)
    announce(state, link, position)


def _make_link(
    state: State, subscription: Subscription, source: Image | Publication, session_id: int,
    position: int,
) -> Saga[tuple[SubscriberLink, SubscriberParams]]:
    plan = subscription.plan
    isolation = isolation_of(plan, source)
    credit = credit_pools.first_share(state, subscription)
    undo = Undo(state.runner)
    counter: AllocateCounter = stream_counter(
        CounterType.SUBSCRIBER_POSITION, key_id=subscription.id, owner_id=subscription.client.id,
        session_id=session_id, stream_id=source.stream_id, channel=plan.channel,
        value=position, reference_id=source.id, suffix=f" @{position}",
    )
    try:
        counter_id: int = yield counter
        undo.on_failure(FreeCounter(counter_id=counter_id))
        slot: int = yield AllocateSlot(kind=SlotKind.SUBSCRIBER, object_id=subscription.id)
    except Refused:
        undo.roll_back()
        raise
    params = SubscriberParams(
        position_counter_id=counter_id,
        slot=slot,
        client_slot=subscription.client.slot,
        join_position=position,
        credits=max(credit.share, 1) if plan.credits else 0,
        credit_burst=plan.credit_burst,
        frozen=subscription.withheld or bool(plan.credits and not credit.share),
        tether=plan.tether or isolation.may_miss,
        rejoin=plan.rejoin,
        isolated=isolation.may_miss,
        depth_bytes=isolation.depth_bytes,
        depth_messages=isolation.depth_messages,
    )
    link = SubscriberLink(
        subscription=subscription, source=source, counter_id=counter_id, slot=slot,
        join_position=position, isolated=isolation.may_miss, credit=credit,
    )
    return link, params


def announce(state: State, link: SubscriberLink, position: int) -> None:
    """Send ImageAvailable to the link's client."""
    source, subscription = link.source, link.subscription
    isolation = isolation_of(subscription.plan, source)
    ordinal = -1
    if isinstance(source, Image):
        ordinal = source.join_ordinal if position == source.join_position else -1
        identity, image_slot, publication_slot = str(source.source), source.slot, -1
        relay_path = source.relay_path
    else:
        identity = "aeron:ipc" if source.endpoint is None else "aeron-spy"
        image_slot, publication_slot = -1, source.slot
        relay_path = source.params.relay_path
    notice = ImageAvailable(
        subscription_id=subscription.id,
        correlation_id=source.id,
        session_id=source.session_id,
        stream_id=source.stream_id,
        log_path=source.log.path,
        position_counter_id=link.counter_id,
        subscriber_slot=link.slot,
        image_slot=image_slot,
        publication_slot=publication_slot,
        source_identity=identity,
        join_position=position,
        join_ordinal=ordinal,
        credit_mode=int(subscription.plan.credits > 0),
        relay_path=list(relay_path),
        isolation=int(isolation.kind),
        depth_bytes=isolation.depth_bytes,
        fan_in_weight=fan_in.weight_of(link),
    )
    state.notify(subscription.client, notice)
    state.event(
        "image_available", subscription_id=subscription.id, image_id=source.id,
        session_id=source.session_id, stream_id=source.stream_id, source=identity,
        position=position,
    )


def withdraw(state: State, link: SubscriberLink, reason: str) -> None:
    """Send ImageUnavailable to the link's client."""
    source = link.source
    end_position = end_ordinal = -1
    if isinstance(source, Image):
        end_position, end_ordinal = source.end_position, source.end_ordinal
    notice = ImageUnavailable(
        subscription_id=link.subscription.id,
        correlation_id=source.id,
        stream_id=source.stream_id,
        reason=reason,
        end_position=end_position,
        end_ordinal=end_ordinal,
    )
    state.notify(link.subscription.client, notice)
    state.event(
        "image_unavailable", subscription_id=link.subscription.id, image_id=link.source.id,
        session_id=link.source.session_id, stream_id=link.source.stream_id, reason=reason,
    )


def report_never_shown(state: State, image: Image) -> None:
    """Send ImageUnavailable about an image that ended before its first frame. Clients that withhold
    credits wait for this image, so they get the notice."""
    for subscription in image.endpoint.subscriptions.of_stream(image.stream_id):
        if subscription.withheld and subscription.wants_session(image.session_id):
            notice = ImageUnavailable(
                subscription_id=subscription.id, correlation_id=image.id,
                stream_id=image.stream_id, reason=image.end_reason, end_position=-1, end_ordinal=-1,
            )
            state.notify(subscription.client, notice)


def unlink(state: State, link: SubscriberLink, *, source_alive: bool = True) -> None:
    """End the link of a subscription. After the end of a link, the image or publication no longer
    waits for the subscription."""
    source = link.source
    source.subscribers.pop(link.subscription.id, None)
    link.subscription.links.pop(source.id, None)
    erase(state, "link", link.subscription.id, source.id)
    state.let_go(source.id, link.subscription.client.group_id)
    fan_in.divide(state, link.subscription)
    if source_alive:
        if isinstance(source, Image):
            fan_in.bound(state, source)
            state.emit(
                RemoveImageSubscriber(image_id=source.id, position_counter_id=link.counter_id)
            )
        else:
            state.emit(
                RemovePublicationSubscriber(
                    publication_id=source.id, position_counter_id=link.counter_id
                )
            )
    delay_ns = SECOND_NS
    if link.subscription.id in state.subscriptions and link.subscription.client.alive:
        delay_ns = max(delay_ns, state.settings.image_linger_ns)
    state.timers.at(state.now_ns + delay_ns, lambda: _free_link(state, link))


def _free_link(state: State, link: SubscriberLink) -> None:
    state.emit(FreeCounter(counter_id=link.counter_id))
    state.emit(FreeSlot(kind=SlotKind.SUBSCRIBER, index=link.slot))


def report_refusal(
    state: State, what: str, refused: Refused, *, source: Address | None = None
) -> None:
    """Report a refusal in the error log and the event feed. Use this function if no client waits
    for the refused step; otherwise the client would get the error.

    :param source: the sender of the datagram that caused the refused step; None: no datagram caused
        it.
    """
    text = f"{what}: {refused.message}"
    state.error(f"refused ({refused.code})", what if source is None else source, text)
    state.event("refused", what=what, code=refused.code, message=refused.message)
