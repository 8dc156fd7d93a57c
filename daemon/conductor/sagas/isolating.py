# SPDX-License-Identifier: Apache-2.0
"""Decide whether a stream waits for one of its readers. A subscription states the policy of its own
readers. A publisher may state a policy for all readers of its stream (``ps-policy=drop_oldest``).
If a publisher states ``ps-fanout=independent``, its stream does not wait for slow readers of the
publisher's log. The stream still waits for readers that must get every message."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from penstock.config.units import write_duration, write_size
from penstock.core.driver_events import Setup
from penstock.core.driver_types import Isolation, Policy
from penstock.daemon.conductor.channel.plans import SubscriptionPlan
from penstock.daemon.conductor.saga import Refused
from penstock.daemon.conductor.state.model import Image, Publication, Subscription


@attrs.frozen
class ReaderIsolation:
    """States how a stream treats one reader that is behind."""

    kind: Isolation = Isolation.GATES
    depth_bytes: int = 0                # of a reader that may miss messages; 0 for others
    depth_messages: int = 0             # of such a reader; 0: no limit in messages

    @property
    def may_miss(self) -> bool:
        """Whether the stream does not wait for the reader."""
        return self.kind is not Isolation.GATES


@attrs.frozen
class Stated:
    """The sender's rules about old data: which data the readers of the stream no longer get."""

    policy: int = Policy.NONE
    depth_bytes: int = 0                # under DROP_OLDEST; 0: this host's choice
    depth_messages: int = 0             # under DROP_OLDEST; 0: no limit in messages
    retention_bytes: int = 0
    retention_ns: int = 0

    @property
    def retention(self) -> str:
        """The retention limit, as a parameter of a channel; "" if the sender states no limit."""
        if self.retention_bytes:
            return f"ps-retention={write_size(self.retention_bytes)}"
        return f"ps-retention-time={write_duration(self.retention_ns)}" if self.retention_ns else ""


def stated_by(event: Setup) -> Stated:
    """Return the rules that a SETUP states."""
    return Stated(
        event.peer_policy, event.peer_depth_bytes, event.peer_depth_messages,
        event.retention_bytes, event.retention_ns,
    )


def isolation_of(plan: SubscriptionPlan, source: Image | Publication) -> ReaderIsolation:
    """Return how a stream treats one of its readers. If a reader may miss messages and is more than
    its depth behind, the stream does not wait for this reader. The depth in bytes is the configured
    number, but at most half a window. If no number of bytes is configured, the depth is half a
    window if a number of messages is configured, else a quarter.

    :raises Refused: the policies of the publication and of the subscription contradict each other.
    """
    kind, depth_bytes, messages = plan.isolation, plan.depth_bytes, plan.depth_messages
    stated = _stated(source)
    check_policies(plan, stated)
    if kind is Isolation.GATES and stated.policy == Policy.DROP_OLDEST:
        kind = Isolation.DROP_OLDEST
        depth_bytes, messages = stated.depth_bytes, stated.depth_messages
    elif kind is Isolation.GATES and _is_independent(source) and not _must_not_miss(plan):
        kind = Isolation.INDEPENDENT
    if kind is Isolation.GATES:
        return ReaderIsolation()
    most = source.params.window_bytes // 2
    return ReaderIsolation(
        kind, min(depth_bytes or (most if messages else most // 2), most), messages
    )


def check_policies(plan: SubscriptionPlan, stated: Stated) -> None:
    """Refuse a reader that must not miss messages if the sender drops messages towards its readers.

    :param stated: of the sender.
    :raises Refused: the policies of the publication and of the subscription contradict each other.
    """
    must = _must_not_miss(plan)
    if must and stated.retention:
        raise Refused(
            "not_supported",
            f"{plan.channel}: {must} contradicts {stated.retention} of the "
            "publication, whose readers lose older data: leave out one of the two",
        )
    if stated.policy == Policy.DROP_OLDEST and must and plan.isolation is Isolation.GATES:
        raise Refused(
            "not_supported",
            f"{plan.channel}: {must} contradicts ps-policy=drop_oldest of the publication, whose "
            "readers skip messages when they are behind: choose another policy for "
            "the publication or for the subscription",
        )


def _must_not_miss(plan: SubscriptionPlan) -> str:
    """Return the setting of a reader that must get each message, "" if there is none."""
    if plan.must_block:
        return "ps-sub-policy=block"
    return f"ps-credits={plan.credits}" if plan.credits else ""


def check_sources(plan: SubscriptionPlan, sources: Iterable[Image | Publication]) -> None:
    """Refuse a new subscription if its policy contradicts the policy of one of the open streams
    that it would read."""
    for source in sources:
        check_policies(plan, _stated(source))


def willing(subscriptions: list[Subscription], stated: Stated) -> list[Subscription]:
    """Return the subscriptions whose policies do not contradict the sender's policy.

    :raises Refused: the sender's policy contradicts the policies of all subscriptions.
    """
    found: list[Subscription] = []
    for number, subscription in enumerate(subscriptions, 1):
        try:
            check_policies(subscription.plan, stated)
        except Refused:
            if not found and number == len(subscriptions):
                raise
        else:
            found.append(subscription)
    return found


def _is_independent(source: Image | Publication) -> bool:
    """Return whether the publisher waits for no local reader that is behind."""
    return isinstance(source, Publication) and source.plan.fanout == "independent"


def _stated(source: Image | Publication) -> Stated:
    """Return the rules of the stream's sender."""
    params = source.params
    if isinstance(source, Image):
        return Stated(source.sender_policy, source.sender_depth_bytes,
                      source.sender_depth_messages, params.retention_bytes, params.retention_ns)
    return Stated(source.params.policy, source.params.depth_bytes,
                  source.params.reader_depth_messages, params.retention_bytes, params.retention_ns)
