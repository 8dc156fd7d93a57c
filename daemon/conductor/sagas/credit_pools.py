# SPDX-License-Identifier: Apache-2.0
"""Divide the credits of subscriptions among publishers (docs/decisions/0264).

A subscription with ``ps-credit-policy`` has a pool of N credits, and each of its publishers has a
share of the pool. If several subscriptions of one client have ``ps-credit-pool=client``, they share
one pool (docs/decisions/0320). At intervals the conductor finds out which publishers used up their
shares, divides the pool (``credit_division``), and changes the shares. To move credits from one
publisher to another, the conductor first lowers the first publisher's share. After lowering a
share, the conductor waits for two conditions: the sender has acknowledged the lower share, and the
publisher's outstanding messages do not exceed the lower share. When both conditions are met, the
conductor grants the freed credits to other publishers. Because the conductor lowers one share
before it raises another, all publishers together never have more outstanding messages than the pool
has credits.

With ``ps-credits=auto`` the conductor adapts the number of credits in the pool to the traffic.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.core.credits import CreditView
from penstock.daemon.conductor.actions.credits import ReadCredits, ReadRoundTrip
from penstock.daemon.conductor.channel.credits import AUTO_FIRST
from penstock.daemon.conductor.channel.plans import SubscriptionPlan, parse
from penstock.daemon.conductor.channel.rules import concerns
from penstock.daemon.conductor.credit_division import Request, divide
from penstock.daemon.conductor.saga import EXCLUSIVE, Refused, Saga
from penstock.daemon.conductor.sagas import fan_in
from penstock.daemon.conductor.sagas.credits import set_credits
from penstock.daemon.conductor.state.machines import ImageState, PublicationState
from penstock.daemon.conductor.state.model import (
    Client,
    CreditShare,
    Image,
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
_ROUND_TRIPS: Final = 2                 # in which a publisher without credit uses its share


def first_share(state: State, subscription: Subscription) -> CreditShare:
    """Return the share of credits that a publisher gets when it joins. With ``ps-credit-policy``,
    the share consists of the pool's credits that no other publisher holds.

    :raises Refused: the pool has no credit for one more publisher.
    """
    plan = subscription.plan
    if not plan.credit_policy:
        return CreditShare(share=plan.credits, held=plan.credits, peak_ns=state.now_ns)
    links = _links(subscription.pool_members)
    check_room(subscription, len(links))
    free = max(_size(subscription) - sum(link.credit.held for link in links), 0)
    return CreditShare(share=free, held=free, peak=free, peak_ns=state.now_ns)


def check_room(subscription: Subscription, members: int) -> None:
    """Refuse a publisher if the pool already has as many publishers as credits.

    :param members: number of publishers of the pool.
    :raises Refused: the pool has no credit for the publisher.
    """
    plan = subscription.plan
    if plan.credit_policy and not plan.credit_auto and members >= plan.credits:
        of = " of all streams of the client" if plan.credit_pool else ""
        raise Refused(
            "limit",
            f"{plan.channel} stream {subscription.stream_id}: ps-credits={plan.credits} with "
            f"ps-credit-policy={plan.credit_policy} is a pool for at most {plan.credits} "
            f"publishers{of}, and this would be publisher {members + 1}: raise ps-credits, or "
            "leave the policy out",
        )


def publishers(subscription: Subscription) -> int:
    """Return the number of publishers that have a share of the subscription's pool."""
    return len(_links(subscription.pool_members))


def watch(state: State, subscription: Subscription) -> None:
    """Begin to divide a subscription's pool at intervals, if the shares can change. Shares can
    change with ``ps-credits=auto``, or with a policy and more than one publisher."""
    plan, pool = subscription.plan, subscription.credit_pool
    if pool.dividing or not plan.credits:
        return
    readers = sum(len(member.links) for member in subscription.pool_members)
    if plan.credit_auto or (plan.credit_policy and readers > 1):
        pool.dividing = True
        _again(state, subscription)


def check_pool(client: Client, plan: SubscriptionPlan, stream_id: int) -> None:
    """Refuse a subscription if its credit parameters differ from those of its client's credit pool.

    :raises Refused: another subscription of the pool states a different number of credits, or a
        different ``ps-credit-policy``.
    """
    if not plan.credit_pool:
        return
    stated = _stated(plan)
    for other in client.subscriptions.values():
        if other.plan.credit_pool and _stated(other.plan) != stated:
            raise Refused(
                "invalid_channel",
                f"{plan.channel} stream {stream_id}: {stated} contradicts "
                f"{_stated(other.plan)} of {other.plan.channel} stream {other.stream_id}: "
                "subscriptions with ps-credit-pool=client share one pool, so state the same "
                "credits in each",
            )


def _stated(plan: SubscriptionPlan) -> str:
    number = "auto" if plan.credit_auto else plan.credits
    return f"ps-credits={number} with ps-credit-policy={plan.credit_policy}"


def _again(state: State, subscription: Subscription) -> None:
    def due() -> None:
        state.runner.start(_step(state, subscription), lambda value, error: None)

    step_ns = state.settings.credit_idle_timeout_ns // _STEPS
    state.timers.at(state.now_ns + min(max(step_ns, _SHORTEST_NS), _LONGEST_NS), due)


def _step(state: State, subscription: Subscription) -> Saga[None]:
    yield EXCLUSIVE
    subscription.credit_pool.dividing = False
    members = [
        each for each in subscription.pool_members
        if state.subscriptions.get(each.id) is each and each.links
    ]
    if not members:
        return
    try:
        if not all(member.withheld for member in members):
            yield from _divide(state, members)
    except Refused:
        pass                            # a reader has gone meanwhile
    watch(state, members[0])


def _divide(state: State, members: list[Subscription]) -> Saga[None]:
    subscription = members[0]
    links = _links(each for each in members if not each.withheld)
    kept = sum(link.credit.held for link in _links(each for each in members if each.withheld))
    for link in links:
        view: CreditView = yield ReadCredits(slot=link.slot)
        rtt_ns: int = 0
        if isinstance(link.source, Image):
            rtt_ns = yield ReadRoundTrip(slot=link.source.slot)
        _measure(state, link, view, rtt_ns)
    targets = _targets(state, subscription, links, kept)
    for link in links:
        if targets[link.slot] < link.credit.share:
            link.credit.share = targets[link.slot]
            link.credit.lowered = True
            link.credit.applied = False
            note_link(state, link)
            yield set_credits(link)
    pooled = bool(subscription.plan.credit_policy)
    free = _size(subscription) - kept - sum(link.credit.held for link in links)
    for link in sorted(links, key=lambda link: link.credit.share):
        more = targets[link.slot] - link.credit.share
        more = min(more, free) if pooled else more
        if more > 0:
            free -= more
            link.credit.share += more
            link.credit.held = max(link.credit.held, link.credit.share)
            note_link(state, link)
            yield set_credits(link)


def _measure(state: State, link: SubscriberLink, view: CreditView, rtt_ns: int) -> None:
    """Note how many credits the publisher used, and whether it needed more (it is hungry). It
    needed more if all messages that it may send have arrived, or if it used its share within two
    round trips. A credit that returns is used again a round trip later, so a shorter time does not
    show that the publisher needed less."""
    credit = link.credit
    if credit.lowered and view.credits == credit.share:
        if credit.applied and view.final >= 0:
            granted = max(view.granted, view.final)
            credit.held = max(min(granted - view.returned, credit.held), credit.share)
            credit.lowered = credit.held > credit.share
        credit.applied = True
    # Below this number no publisher can have been without credit.
    used = min(max(view.passed - credit.returned, 0), credit.share)
    whole = state.now_ns - credit.since_ns >= _ROUND_TRIPS * rtt_ns
    if used >= credit.share or view.arrived >= view.granted > 0:
        credit.hungry = True
    elif whole:
        credit.hungry = False
    if used >= min(credit.peak, credit.share) or \
            state.now_ns - credit.peak_ns >= state.settings.credit_idle_timeout_ns:
        credit.peak, credit.peak_ns = used, state.now_ns
    if whole:
        credit.returned, credit.since_ns = view.returned, state.now_ns
    subscription = link.subscription
    most = _size(subscription) - len(_links(subscription.pool_members)) + 1
    if not credit.hungry:
        credit.waits = 0
    elif not credit.waits or credit.share >= most:      # a publisher that got all requests again
        subscription.credit_pool.requests += 1
        credit.waits = subscription.credit_pool.requests


def _wanted(link: SubscriberLink, most: int) -> int:
    """Return the request of a publisher: all, or a power of two above what it used."""
    credit = link.credit
    if credit.hungry:
        return most
    return int(min(1 << (_SPARE * credit.peak).bit_length(), most))


def _targets(
    state: State, subscription: Subscription, links: list[SubscriberLink], kept: int
) -> dict[int, int]:
    """Return the new share of each publisher.

    :param kept: credits of the pool that withheld subscriptions keep.
    """
    plan = subscription.plan
    if not plan.credit_policy:
        return {link.slot: _automatic(link.credit.share, [link], plan.credit_most)
                for link in links}
    if plan.credit_auto:
        subscription.credit_pool.size = _automatic(
            max(_size(subscription), len(links)), links, plan.credit_most
        )
    pool = max(_size(subscription) - kept, len(links))
    if all(link.credit.share for link in links) and not any(link.credit.hungry for link in links):
        return {link.slot: link.credit.share for link in links}
    requests = [
        Request(
            id=link.slot, credits=_wanted(link, pool), weight=weight_of(state, link),
            arrived=link.credit.waits,
        )
        for link in links
    ]
    shared = subscription.credit_pool
    division = divide(plan.credit_policy, pool, requests, shared.owed)
    shared.turns += 1
    # A credit that moves is idle for two divisions, so what rounding owes is paid back rarely.
    if plan.credit_policy == "deficit" or shared.turns % _STEPS == 0:
        shared.owed = dict(division.owed)
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
    """Return the weight of a publisher for the division of credits. A ``[[stream]]`` rule of this
    host takes precedence over the weight that the SETUP of a remote publisher states."""
    source = link.source
    if isinstance(source, Publication) and source.plan.credit_weight:
        return source.plan.credit_weight
    stated = source.sender_credit_weight if isinstance(source, Image) else 0
    return _rule_weight(state, link) or stated or fan_in.weight_of(link) or 1


def _rule_weight(state: State, link: SubscriberLink) -> int:
    source = link.source
    stated = parse(link.subscription.plan.channel)
    for rule in state.settings.rules:
        if (
            concerns(rule, stated, link.subscription.stream_id)
            and rule.session_id in (None, source.session_id)
            and rule.term_length_bytes in (0, source.log.term_length)
        ):
            return rule.credit_weight
    return 0


def _size(subscription: Subscription) -> int:
    return subscription.credit_pool.size or subscription.plan.credits


def _links(members: Iterable[Subscription]) -> list[SubscriberLink]:
    """Return the readers of streams that have publishers, in the order in which they joined. The
    credits of a publisher that has ended are those of the others again."""
    return [
        link for member in members for link in member.links.values()
        if not link.resting and link.source.state in (PublicationState.ACTIVE, ImageState.ACTIVE)
    ]


def adopt(link: SubscriberLink) -> int:
    """Return how many credits an adopted reader grants at first. This number is the link's share of
    the pool. If the old daemon died before the sender acknowledged a lower share, return the share
    plus one credit. The new daemon then lowers the share again, so that the sender acknowledges the
    lower share."""
    credit = link.credit
    credit.lowered = credit.held > credit.share
    return credit.share + int(credit.lowered)
