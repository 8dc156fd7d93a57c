# SPDX-License-Identifier: Apache-2.0
"""Divide the credits of subscriptions among publishers (docs/decisions/0264).

A subscription with ``ps-credit-policy`` has a pool of N credits, and each of its publishers has a
share of the pool. At each step the conductor finds out which publishers used up their shares,
divides the pool (``credit_division``), and changes the shares. To move credits, the conductor first
lowers one publisher's share. The conductor then waits until the sender has acknowledged the lower
share, and no more messages than this share are outstanding. Last, the conductor grants the free
credits to other publishers. The sum of all outstanding messages therefore never exceeds the pool.

With ``ps-credits=auto`` the conductor adapts the number of credits in the pool to the traffic.
"""

from __future__ import annotations

from typing import Final

from penstock.core.credits import CreditView
from penstock.daemon.conductor.actions.credits import ReadCredits
from penstock.daemon.conductor.channel.credits import AUTO_FIRST
from penstock.daemon.conductor.channel.plans import parse
from penstock.daemon.conductor.channel.rules import concerns
from penstock.daemon.conductor.credit_division import Request, divide
from penstock.daemon.conductor.saga import EXCLUSIVE, Refused, Saga
from penstock.daemon.conductor.sagas.credits import set_credits
from penstock.daemon.conductor.state.machines import ImageState, PublicationState
from penstock.daemon.conductor.state.model import (
    CreditShare,
    Publication,
    SubscriberLink,
    Subscription,
)
from penstock.daemon.conductor.state.registry import note_link
from penstock.daemon.conductor.state.state import State

_STEPS: Final = 8                       # in an idle time-out
_LONGEST_NS: Final = 125_000_000
_SHORTEST_NS: Final = 10_000_000
_SPARE: Final = 2                       # a publisher requests twice what it used


def first_share(state: State, subscription: Subscription) -> CreditShare:
    """Return the first share of credits of a publisher that joins. With ``ps-credit-policy``, the
    first share is the free part of the pool.

    :raises Refused: the pool has no credit for one more publisher.
    """
    plan = subscription.plan
    if not plan.credit_policy:
        return CreditShare(share=plan.credits, held=plan.credits, peak_ns=state.now_ns)
    check_room(subscription, len(_links(subscription)))
    free = max(_size(subscription) - sum(link.credit.held for link in _links(subscription)), 0)
    return CreditShare(share=free, held=free, peak=free, peak_ns=state.now_ns)


def check_room(subscription: Subscription, members: int) -> None:
    """Refuse a publisher if the pool already has as many publishers as credits.

    :raises Refused: the pool has no credit for the publisher.
    """
    plan = subscription.plan
    if plan.credit_policy and not plan.credit_auto and members >= plan.credits:
        raise Refused(
            "limit",
            f"{plan.channel} stream {subscription.stream_id}: ps-credits={plan.credits} with "
            f"ps-credit-policy={plan.credit_policy} is a pool for {plan.credits} publishers, and "
            f"this would be publisher {members + 1}: raise ps-credits, or leave the policy out",
        )


def watch(state: State, subscription: Subscription) -> None:
    """Divide the pool of a subscription at intervals, as long as publishers need credits."""
    plan = subscription.plan
    if subscription.dividing or not plan.credits:
        return
    if plan.credit_auto or (plan.credit_policy and len(subscription.links) > 1):
        subscription.dividing = True
        _again(state, subscription)


def _again(state: State, subscription: Subscription) -> None:
    def due() -> None:
        state.runner.start(_step(state, subscription), lambda value, error: None)

    step_ns = state.settings.credit_idle_timeout_ns // _STEPS
    state.timers.at(state.now_ns + min(max(step_ns, _SHORTEST_NS), _LONGEST_NS), due)


def _step(state: State, subscription: Subscription) -> Saga[None]:
    yield EXCLUSIVE
    subscription.dividing = False
    if state.subscriptions.get(subscription.id) is not subscription or not subscription.links:
        return
    try:
        if not subscription.withheld:
            yield from _divide(state, subscription)
    except Refused:
        pass                            # a reader has gone meanwhile
    watch(state, subscription)


def _divide(state: State, subscription: Subscription) -> Saga[None]:
    links = _links(subscription)
    for link in links:
        view: CreditView = yield ReadCredits(slot=link.slot)
        _measure(state, link, view)
    targets = _targets(state, subscription, links)
    for link in links:
        if targets[link.source.id] < link.credit.share:
            link.credit.share = targets[link.source.id]
            link.credit.lowered = True
            link.credit.applied = False
            note_link(state, link)
            yield set_credits(link)
    pooled = bool(subscription.plan.credit_policy)
    free = _size(subscription) - sum(link.credit.held for link in links)
    for link in sorted(links, key=lambda link: link.credit.share):
        more = targets[link.source.id] - link.credit.share
        more = min(more, free) if pooled else more
        if more > 0:
            free -= more
            link.credit.share += more
            link.credit.held = max(link.credit.held, link.credit.share)
            note_link(state, link)
            yield set_credits(link)


def _measure(state: State, link: SubscriberLink, view: CreditView) -> None:
    """Note what the publisher used since the last step, and whether it needed more."""
    credit = link.credit
    if credit.lowered and view.credits == credit.share:
        if credit.applied and view.final >= 0:
            granted = max(view.granted, view.final)
            credit.held = max(min(granted - view.returned, credit.held), credit.share)
            credit.lowered = credit.held > credit.share
        credit.applied = True
    # Below this number no publisher can have been without credit.
    used = min(max(view.passed - credit.returned, 0), credit.share)
    credit.hungry = used >= credit.share
    if used >= min(credit.peak, credit.share) or \
            state.now_ns - credit.peak_ns >= state.settings.credit_idle_timeout_ns:
        credit.peak, credit.peak_ns = used, state.now_ns
    credit.returned = view.returned
    subscription = link.subscription
    most = _size(subscription) - len(_links(subscription)) + 1
    if not credit.hungry:
        credit.waits = 0
    elif not credit.waits or credit.share >= most:      # a publisher that got all requests again
        subscription.requests += 1
        credit.waits = subscription.requests


def _wanted(link: SubscriberLink, most: int) -> int:
    """Return the request of a publisher: all, or a power of two above what it used."""
    credit = link.credit
    if credit.hungry:
        return most
    return int(min(1 << (_SPARE * credit.peak).bit_length(), most))


def _targets(
    state: State, subscription: Subscription, links: list[SubscriberLink]
) -> dict[int, int]:
    plan = subscription.plan
    if not plan.credit_policy:
        return {link.source.id: _automatic(link.credit.share, [link], plan.credit_most)
                for link in links}
    if plan.credit_auto:
        subscription.pool = _automatic(
            max(_size(subscription), len(links)), links, plan.credit_most
        )
    pool = _size(subscription)
    if all(link.credit.share for link in links) and not any(link.credit.hungry for link in links):
        return {link.source.id: link.credit.share for link in links}
    requests = [
        Request(
            id=link.source.id, credits=_wanted(link, pool), weight=weight_of(state, link),
            arrived=link.credit.waits,
        )
        for link in links
    ]
    division = divide(plan.credit_policy, pool, requests, subscription.owed)
    subscription.owed = dict(division.owed) if plan.credit_policy == "deficit" else {}
    return _complete(dict(division.shares), pool)


def _complete(shares: dict[int, int], pool: int) -> dict[int, int]:
    """Give each publisher at least one, and divide equally what was not requested. The pool has one
    for each (check_room)."""
    for id_ in shares:
        if not shares[id_] and sum(shares.values()) >= pool:
            richest = max(shares, key=lambda other: shares[other])
            shares[richest] -= 1
        shares[id_] = max(shares[id_], 1)
    left = pool - sum(shares.values())
    for number, id_ in enumerate(shares):
        shares[id_] += left // len(shares) + (number < left % len(shares))
    return shares


def _automatic(now: int, links: list[SubscriberLink], most: int) -> int:
    """Return the number of credits for what the publishers used: twice as many if one was without,
    fewer if they used less than a quarter."""
    if any(link.credit.hungry for link in links):
        return min(_SPARE * now, most)
    needed = max(sum(_wanted(link, most) for link in links), AUTO_FIRST)
    return min(needed if _SPARE * needed <= now else now, most)


def weight_of(state: State, link: SubscriberLink) -> int:
    """Return the weight of a publisher: the value that a local publication states, or that a
    ``[[stream]]`` rule sets for the session."""
    source = link.source
    if isinstance(source, Publication) and source.plan.credit_weight:
        return source.plan.credit_weight
    stated = parse(link.subscription.plan.channel)
    for rule in state.settings.rules:
        if (
            concerns(rule, stated, link.subscription.stream_id)
            and rule.session_id in (None, source.session_id)
            and rule.term_length_bytes in (0, source.log.term_length)
        ):
            return rule.credit_weight or 1
    return 1


def _size(subscription: Subscription) -> int:
    return subscription.pool or subscription.plan.credits


def _links(subscription: Subscription) -> list[SubscriberLink]:
    """Return the readers of streams that have publishers, in the order in which they joined. The
    credits of a publisher that has ended are those of the others again."""
    return [
        link for link in subscription.links.values()
        if not link.resting and link.source.state in (PublicationState.ACTIVE, ImageState.ACTIVE)
    ]


def adopt(link: SubscriberLink) -> int:
    """Return the credits with which a new daemon adds an adopted reader. If the sender had not
    acknowledged a lower share, the new daemon must lower it again, so it first states one credit
    more."""
    credit = link.credit
    credit.lowered = credit.held > credit.share
    return credit.share + int(credit.lowered)
