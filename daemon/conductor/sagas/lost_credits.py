# SPDX-License-Identifier: Apache-2.0
"""Report credits that applications lost: a handle was garbage-collected before its release.

The client counts lost credits in the slot of the reader. Once a second the conductor reads the
slots of each subscription with credits. A new daemon repeats the dead daemon's reports of lost
credits, because its own event feed has not shown them.
"""

from __future__ import annotations

from typing import Final

from penstock.core.credits import CreditView
from penstock.daemon.conductor.actions import Warn
from penstock.daemon.conductor.actions.credits import ReadCredits
from penstock.daemon.conductor.saga import EXCLUSIVE, Refused, Saga
from penstock.daemon.conductor.settings import SECOND_NS
from penstock.daemon.conductor.state.model import SubscriberLink, Subscription
from penstock.daemon.conductor.state.state import State

PERIOD_NS: Final = SECOND_NS


def watch_losses(state: State, subscription: Subscription) -> None:
    """Begin to look for lost credits at intervals, until the subscription has no reader left."""
    if subscription.plan.credits and not subscription.watches_losses:
        subscription.watches_losses = True
        _again(state, subscription)


def _again(state: State, subscription: Subscription) -> None:
    def due() -> None:
        state.runner.start(_look(state, subscription), lambda value, error: None)

    state.timers.at(state.now_ns + PERIOD_NS, due)


def _look(state: State, subscription: Subscription) -> Saga[None]:
    yield EXCLUSIVE
    if state.subscriptions.get(subscription.id) is not subscription or not subscription.links:
        subscription.watches_losses = False
        return
    try:
        for link in list(subscription.links.values()):
            view: CreditView = yield ReadCredits(slot=link.slot)
            _report(state, link, view.leaked)
    except Refused:
        pass                            # a reader has gone meanwhile
    _again(state, subscription)


def _report(state: State, link: SubscriberLink, leaked: int) -> None:
    more = leaked - link.leaked
    link.leaked = leaked                # less than before: the application reclaimed some
    if more <= 0:
        return
    subscription = link.subscription
    client, stream = subscription.client, f"stream {subscription.stream_id}"
    state.emit(Warn(
        text=f"{stream} on {subscription.plan.channel}, session {link.source.session_id}: client "
        f"{client.id} {client.name!r} lost {more} credits: it dropped their handles without a "
        "release"
    ))
    state.event(
        "credits_lost", credits=more, leaked=leaked, subscription_id=subscription.id,
        stream_id=subscription.stream_id, session_id=link.source.session_id,
        channel=subscription.plan.channel, client_id=client.id, name=client.name,
    )
