# SPDX-License-Identifier: Apache-2.0
"""Withhold, resume and report the credits that subscriptions grant."""

from __future__ import annotations

from typing import Any

from penstock.config.protocol.control import CreditReport, WithholdStream
from penstock.core.credits import CreditState, CreditView
from penstock.core.driver_types import NO_COUNTER
from penstock.daemon.conductor.actions.credits import (
    ReadCredits,
    SetImageCredits,
    SetPublicationCredits,
)
from penstock.daemon.conductor.saga import EXCLUSIVE, Refused, Saga
from penstock.daemon.conductor.state.machines import ImageState
from penstock.daemon.conductor.state.model import Image, Publication, SubscriberLink, Subscription
from penstock.daemon.conductor.state.registry import note_subscription
from penstock.daemon.conductor.state.state import State


def set_withheld(state: State, subscription: Subscription, *, withheld: bool) -> Saga[None]:
    """Withhold the credits of a subscription, or grant them again. If an image joins while the
    credits are withheld, its credits are withheld too. If one ends meanwhile, its credits end too.

    :raises Refused: the subscription grants no credits.
    """
    if not subscription.plan.credits:
        raise Refused(
            "not_supported",
            f"stream {subscription.stream_id} on {subscription.plan.channel}: this subscription "
            "grants no credits: add it with ps-credits",
        )
    changed = subscription.withheld != withheld
    subscription.withheld = withheld
    note_subscription(state, subscription)
    for link in list(subscription.links.values()):
        # Until the agent applied it, the slot may show the end of an earlier freeze.
        view: CreditView = yield ReadCredits(slot=link.slot)
        link.credit.before_freeze = view.epoch
        yield from _set_unless_ended(set_credits(link))
    for image in _without_reader(subscription):
        yield from _set_unless_ended(SetImageCredits(
            image_id=image.id, position_counter_id=NO_COUNTER, credits=subscription.plan.credits,
            burst=subscription.plan.credit_burst,
            frozen=withheld or bool(subscription.plan.credit_policy),
        ))
    if changed:
        state.event(
            "credits_withheld", withheld=withheld, subscription_id=subscription.id,
            stream_id=subscription.stream_id, channel=subscription.plan.channel,
            client_id=subscription.client.id, name=subscription.client.name,
        )


def _set_unless_ended(action: SetImageCredits | SetPublicationCredits) -> Saga[None]:
    """Set the credits of one stream. The thread of the stream may have removed the stream before
    the conductor unlinks its readers."""
    try:
        yield action
    except Refused as refused:
        if refused.code != "unknown_registration":
            raise


def _without_reader(subscription: Subscription) -> list[Image]:
    """Return the images that the subscription will read, and that have no reader yet."""
    if subscription.endpoint is None:
        return []
    return [
        image for image in subscription.endpoint.images.of_stream(subscription.stream_id)
        if not image.established and subscription.wants_session(image.session_id)
    ]


def coming(subscription: Subscription) -> list[Image]:
    """Return the images that the subscription is about to read. The senders of these images may
    already have sent messages. The conductor links a subscription to an image when the image's
    first frame or heartbeat has arrived."""
    if subscription.endpoint is None:
        return []
    return [
        image for image in subscription.endpoint.images.of_stream(subscription.stream_id)
        if image.state is ImageState.ACTIVE and not image.shown
        and subscription.wants_session(image.session_id)
        and subscription.id not in image.subscribers
    ]


def set_credits(link: SubscriberLink) -> SetImageCredits | SetPublicationCredits:
    """Return the action that passes a reader's credits to the thread of the stream: the sender or
    the receiver."""
    plan = link.subscription.plan
    share = link.credit.share
    if isinstance(link.source, Image):
        return SetImageCredits(
            image_id=link.source.id, position_counter_id=link.counter_id, credits=max(share, 1),
            burst=plan.credit_burst, frozen=is_frozen(link),
        )
    return SetPublicationCredits(
        publication_id=link.source.id, position_counter_id=link.counter_id, credits=max(share, 1),
        burst=plan.credit_burst, frozen=is_frozen(link),
    )


def is_frozen(link: SubscriberLink) -> bool:
    """Return whether a reader grants no credits now. A reader grants no credits while they are
    withheld, or until its publisher has a share of the pool."""
    return link.subscription.withheld or not link.credit.share


def serve(state: State, message: WithholdStream) -> Saga[CreditReport]:
    """Withhold or resume the credits of a stream at the request of an external program; return the
    state of the stream's readers."""
    yield EXCLUSIVE
    found = [
        s for s in state.subscriptions.of_stream(message.stream_id)
        if s.plan.credits and _is_meant(state, s, message)
    ]
    if not found:
        where = f" on {message.channel}" if message.channel else ""
        where += f" of group {message.group}" if message.group else ""
        raise Refused(
            "unknown_registration",
            f"no subscription of this daemon grants credits on stream {message.stream_id}{where}",
        )
    if message.action != "report":
        for subscription in found:
            yield from set_withheld(state, subscription, withheld=message.action == "withhold")
    readers = []
    for subscription in found:
        for link in list(subscription.links.values()):
            view: CreditView = yield ReadCredits(slot=link.slot)
            readers.append(describe(link, view))
        readers += [_describe_coming(subscription, image) for image in coming(subscription)]
    return CreditReport(
        readers={str(number): reader for number, reader in enumerate(readers)},
        withheld=all(s.withheld for s in found),
        complete=all(reader["complete"] for reader in readers),
    )


def _is_meant(state: State, subscription: Subscription, message: WithholdStream) -> bool:
    """Return whether a request is about a subscription. The subscriptions of a group have the
    channel of the group, and a session too if the group reads single sessions."""
    group = state.groups.get(subscription.client.group_id)
    channel = subscription.plan.channel if group is None else group.channel
    return message.channel in ("", channel) and (
        not message.group or (group is not None and group.name == message.group)
    )


def describe(link: SubscriberLink, view: CreditView) -> dict[str, Any]:
    """Return the state of a reader's credits as plain data, for a CreditReport."""
    stale = link.subscription.withheld and view.epoch == link.credit.before_freeze
    state = CreditState.FREEZING if stale else CreditState(view.state)
    return {
        **_identity(link.subscription, link.source), "state": state.name.lower(),
        "credits": view.credits, "granted": view.granted, "passed": view.passed,
        "returned": view.returned, "leaked": view.leaked, "arrived": view.arrived,
        "final": view.final, "complete": view.is_complete and not stale,
    }


def _describe_coming(subscription: Subscription, image: Image) -> dict[str, Any]:
    return {
        **_identity(subscription, image), "state": "half_open",
        "credits": subscription.plan.credits, "granted": 0, "passed": 0, "returned": 0, "leaked": 0,
        "arrived": 0, "final": -1, "complete": False,
    }


def _identity(subscription: Subscription, source: Image | Publication) -> dict[str, Any]:
    if isinstance(source, Image):
        identity = str(source.source)
    else:
        identity = "aeron:ipc" if source.endpoint is None else "aeron-spy"
    return {
        "subscription_id": subscription.id, "client_id": subscription.client.id,
        "client": subscription.client.name, "channel": subscription.plan.channel,
        "stream_id": subscription.stream_id, "session_id": source.session_id, "source": identity,
    }
