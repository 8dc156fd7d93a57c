# SPDX-License-Identifier: Apache-2.0
"""Subscriptions: network, IPC and spies."""

from __future__ import annotations

from collections.abc import Callable

from penstock.config.protocol.control import AddSubscription, SubscriptionReady
from penstock.core.driver_types import NO_COUNTER
from penstock.daemon.conductor.channel import rules
from penstock.daemon.conductor.channel.lookup import (
    RecvAddressing,
    check_interface,
    recv_addressing,
    send_addressing,
)
from penstock.daemon.conductor.channel.plans import (
    SubscriptionPlan,
    group_subscription_plan,
    parse,
    subscription_plan,
)
from penstock.daemon.conductor.saga import EXCLUSIVE, Refused, Saga
from penstock.daemon.conductor.sagas import congestion
from penstock.daemon.conductor.sagas.credit_pools import check_pool
from penstock.daemon.conductor.sagas.images import leave_half_open, leave_image
from penstock.daemon.conductor.sagas.isolating import check_sources
from penstock.daemon.conductor.sagas.linking import (
    link_image,
    report_refusal,
    unlink,
    wants_publication,
)
from penstock.daemon.conductor.sagas.publications import link_quietly
from penstock.daemon.conductor.sagas.recv_endpoints import (
    acquire,
    add_interest,
    release_if_unused,
    remove_interest,
)
from penstock.daemon.conductor.state.machines import ImageState
from penstock.daemon.conductor.state.model import Client, Image, Joins, RecvEndpoint, Subscription
from penstock.daemon.conductor.state.registry import erase, note_subscription
from penstock.daemon.conductor.state.state import State

Answer = Callable[[SubscriptionReady], None]


def add_subscription(
    state: State, client: Client, message: AddSubscription, answer: Answer, *,
    joins: Joins = Joins.BESIDE,
) -> Saga[None]:
    """Add a subscription. The saga calls ``answer`` to reply to the client before it sends notices
    about images."""
    plan = plan_of(state, client, message.channel, message.stream_id)
    check_pool(client, plan, message.stream_id)
    if plan.kind == "udp":
        yield from congestion.check(plan, message.stream_id, state.settings)
        yield from _add_network(state, client, plan, message, answer, joins)
    else:
        yield from _add_local(state, client, plan, message, answer, joins)


def plan_of(state: State, client: Client, channel: str, stream_id: int) -> SubscriptionPlan:
    """Plan a subscription from its channel and the values that ``[[stream]]`` rules add to the
    channel.

    :raises Refused: the channel is invalid, or a value of a rule contradicts the channel.
    """
    parsed = rules.apply(parse(channel), stream_id, state.settings, publication=False)
    make_plan = group_subscription_plan if client.group_id else subscription_plan
    return make_plan(parsed, channel, state.settings)


def _has_address(plan: SubscriptionPlan) -> bool:
    return plan.address.endpoint is not None or plan.address.control is not None


def _add_network(
    state: State, client: Client, plan: SubscriptionPlan, message: AddSubscription, answer: Answer,
    joins: Joins,
) -> Saga[None]:
    addressing: RecvAddressing | None = None
    if _has_address(plan):
        addressing = yield from recv_addressing(plan.address, state.settings)
    else:
        yield from check_interface(plan.address)
    yield EXCLUSIVE
    if not client.alive:
        raise Refused("not_leased", "the client has gone")
    endpoint = yield from acquire(state, plan, addressing)
    try:
        _check_alike(endpoint, plan, message.stream_id)
        check_sources(plan, _images_for(endpoint, plan, message.stream_id))
        yield from add_interest(state, endpoint, message.stream_id, plan.session_id)
    except Refused:
        release_if_unused(state, endpoint)
        raise
    subscription = Subscription(
        id=state.next_id(), client=client, plan=plan, stream_id=message.stream_id,
        endpoint=endpoint, joins=joins,
    )
    endpoint.subscribe(subscription)
    _register(state, subscription)
    answer(
        SubscriptionReady(
            registration_id=subscription.id,
            stream_id=subscription.stream_id,
            channel_status_id=endpoint.status_counter,
            local_addresses=[str(d.address) for d in endpoint.destinations.values()],
        )
    )
    for image in endpoint.images.of_stream(subscription.stream_id):
        if image.established and image.state is ImageState.ACTIVE \
                and subscription.wants_session(image.session_id):
            try:
                yield from link_image(state, subscription, image)
            except Refused as refused:
                report_refusal(state, f"subscription {subscription.id}", refused)


def _images_for(endpoint: RecvEndpoint, plan: SubscriptionPlan, stream_id: int) -> list[Image]:
    return [
        image for image in endpoint.images.of_stream(stream_id)
        if plan.session_id in (None, image.session_id)
    ]


def _check_alike(endpoint: RecvEndpoint, plan: SubscriptionPlan, stream_id: int) -> None:
    """Refuse a subscription whose parameters differ from others of the stream, which share its
    images."""
    for other in endpoint.subscriptions.of_stream(stream_id):
        for key, old, new in (
            ("reliable", _word(other.plan.reliable), _word(plan.reliable)),
            ("rejoin", _word(other.plan.rejoin), _word(plan.rejoin)),
            ("cc", str(other.plan.congestion_control), str(plan.congestion_control)),
        ):
            if old != new:
                raise Refused(
                    "invalid_channel",
                    f"{plan.channel}: {key}={new} contradicts another subscription of stream "
                    f"{stream_id} on this channel, which has {key}={old}",
                )


def _word(value: bool) -> str:
    return "true" if value else "false"


def _add_local(
    state: State, client: Client, plan: SubscriptionPlan, message: AddSubscription, answer: Answer,
    joins: Joins,
) -> Saga[None]:
    subscription = Subscription(
        id=state.next_id(), client=client, plan=plan, stream_id=message.stream_id,
        joins=joins,
    )
    if plan.kind == "spy":
        if plan.address.endpoint is not None or plan.address.control_mode:
            addressing = yield from send_addressing(plan.address, state.settings)
            subscription.spy_key = addressing.key
        subscription.spy_tag = plan.address.channel_tag
    yield EXCLUSIVE
    if not client.alive:
        raise Refused("not_leased", "the client has gone")
    same_stream = state.publications.of_stream(subscription.stream_id)
    check_sources(plan, [p for p in same_stream if wants_publication(subscription, p)])
    _register(state, subscription)
    answer(
        SubscriptionReady(
            registration_id=subscription.id,
            stream_id=subscription.stream_id,
            channel_status_id=NO_COUNTER,
        )
    )
    for publication in state.publications.of_stream(subscription.stream_id):
        if wants_publication(subscription, publication):
            yield from link_quietly(state, subscription, publication)


def _register(state: State, subscription: Subscription) -> None:
    state.subscriptions[subscription.id] = subscription
    subscription.client.subscriptions[subscription.id] = subscription
    note_subscription(state, subscription)
    state.event(
        "subscription_added", subscription_id=subscription.id, stream_id=subscription.stream_id,
        channel=subscription.plan.channel,
    )


def remove_subscription(state: State, subscription: Subscription) -> None:
    """End a subscription. If no other subscription reads an image, the image drains and ends."""
    state.subscriptions.pop(subscription.id, None)
    subscription.client.subscriptions.pop(subscription.id, None)
    erase(state, "subscription", subscription.id)
    for link in list(subscription.links.values()):
        if isinstance(link.source, Image):
            leave_image(state, link)
        else:
            unlink(state, link)
    endpoint = subscription.endpoint
    if endpoint is not None:
        endpoint.unsubscribe(subscription)
        leave_half_open(state, endpoint, subscription.stream_id)
        remove_interest(state, endpoint, subscription.stream_id, subscription.plan.session_id)
        release_if_unused(state, endpoint)
    state.event(
        "subscription_removed", subscription_id=subscription.id,
        stream_id=subscription.stream_id, channel=subscription.plan.channel,
    )
