# SPDX-License-Identifier: Apache-2.0
"""Decide whether a stream waits for one of its readers. A subscription states the policy of its own
readers. A publisher may state a policy for all readers of its stream (``ps-policy=drop_oldest``),
or a fan-out for readers of its log (``ps-fanout=independent``)."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from penstock.core.driver_types import Isolation, Policy
from penstock.daemon.conductor.channel.plans import SubscriptionPlan
from penstock.daemon.conductor.saga import Refused
from penstock.daemon.conductor.state.model import Image, Publication, Subscription


@attrs.frozen
class ReaderIsolation:
    """States how a stream treats one reader that is behind."""

    kind: Isolation = Isolation.GATES
    depth_bytes: int = 0                # of a reader that may miss messages; 0 for others

    @property
    def may_miss(self) -> bool:
        """Whether the stream does not wait for the reader."""
        return self.kind is not Isolation.GATES


def isolation_of(plan: SubscriptionPlan, source: Image | Publication) -> ReaderIsolation:
    """Return how a stream treats one of its readers. A reader that may miss messages can be behind
    by its depth. The depth is the configured number of bytes, at most half a window. If no depth is
    configured, the depth is a quarter of a window.

    :raises Refused: the policies of the publication and of the subscription contradict each other.
    """
    kind, depth_bytes = plan.isolation, plan.depth_bytes
    policy, its_depth_bytes = _stated(source)
    if kind is Isolation.GATES and policy == Policy.DROP_OLDEST:
        check_policies(plan, policy)
        kind, depth_bytes = Isolation.DROP_OLDEST, its_depth_bytes
    elif kind is Isolation.GATES and _is_independent(source) and not _must_not_miss(plan):
        kind = Isolation.INDEPENDENT
    if kind is Isolation.GATES:
        return ReaderIsolation()
    window_bytes = source.params.window_bytes
    return ReaderIsolation(kind, min(depth_bytes or window_bytes // 4, window_bytes // 2))


def check_policies(plan: SubscriptionPlan, policy: int) -> None:
    """Refuse a reader that must not miss messages if the sender's policy skips messages.

    :param policy: of the sender.
    :raises Refused: the policies of the publication and of the subscription contradict each other.
    """
    stated = _must_not_miss(plan)
    if policy == Policy.DROP_OLDEST and stated:
        raise Refused(
            "not_supported",
            f"{plan.channel}: {stated} contradicts ps-policy=drop_oldest of the publication, whose "
            "readers skip messages when they are behind: choose another policy at one end",
        )


def _must_not_miss(plan: SubscriptionPlan) -> str:
    """Return the setting of a reader that must get each message, "" if there is none."""
    if plan.must_block:
        return "ps-sub-policy=block"
    return f"ps-credits={plan.credits}" if plan.credits else ""


def check_sources(plan: SubscriptionPlan, sources: Iterable[Image | Publication]) -> None:
    """Refuse a new subscription if the daemon already has a stream for the subscription, and the
    policies of both contradict each other."""
    for source in sources:
        check_policies(plan, _stated(source)[0])


def willing(subscriptions: list[Subscription], policy: int) -> list[Subscription]:
    """Return the subscriptions whose policies do not contradict the sender's policy.

    :raises Refused: the sender's policy contradicts the policies of all subscriptions.
    """
    found: list[Subscription] = []
    for number, subscription in enumerate(subscriptions, 1):
        try:
            check_policies(subscription.plan, policy)
        except Refused:
            if not found and number == len(subscriptions):
                raise
        else:
            found.append(subscription)
    return found


def _is_independent(source: Image | Publication) -> bool:
    """Return whether the publisher waits for no local reader that is behind."""
    return isinstance(source, Publication) and source.plan.fanout == "independent"


def _stated(source: Image | Publication) -> tuple[int, int]:
    """Return the sender's policy, and the depth of its readers."""
    if isinstance(source, Image):
        return source.sender_policy, source.sender_depth_bytes
    return source.params.policy, source.params.depth_bytes
