# SPDX-License-Identifier: Apache-2.0
"""Moving messages between clients within one test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from support.hosts import PenstockHost
from support.patience import Patience

from penstock import Offer, Publication, Subscription

TIMEOUT_S = 60.0
#: Refusals that pass by themselves.  STORAGE: of a young log with small terms, until the daemon has
#: reserved the next one, which takes longer on a busy machine than a publisher takes to get there.
#: THROTTLED: instead of BACK_PRESSURED, while a daemon waits for the processor behind others.
PASSING = (Offer.BACK_PRESSURED, Offer.ADMIN_ACTION, Offer.STORAGE, Offer.THROTTLED)


def messages(count: int, size: int = 100) -> list[bytes]:
    """Numbered messages of growing size up to ``size``."""
    return [b"%d:" % n + bytes((n + k) % 256 for k in range(n % size)) for n in range(count)]


def connected(publication: Publication, *subscriptions: Subscription) -> None:
    """Waits until both ends see each other."""
    ends: tuple[Publication | Subscription, ...] = (publication, *subscriptions)
    for end in ends:
        patience = Patience(TIMEOUT_S)
        while not end.wait_connected(1.0):
            assert not patience.is_over, f"{end} is not connected"


def eventually(happened: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S) -> None:
    """For state that other processes change without telling us."""
    patience = Patience(timeout_s)
    while not happened():
        assert not patience.is_over, what
        time.sleep(0.01)


def log_files(host: PenstockHost) -> set[str]:
    return {path.name for path in host.directory.rglob("*.logbuffer")}


def receive(
    subscription: Subscription,
    count: int,
    *,
    timeout_s: float = TIMEOUT_S,
    into: list[bytes] | None = None,
) -> list[bytes]:
    """Polls until ``count`` messages are there, and fails at the time-out.  Appends to ``into``."""
    received: list[bytes] = into if into is not None else []
    patience = Patience(timeout_s)
    while len(received) < count:
        if not subscription.poll(lambda m, _h: received.append(bytes(m)), 64):
            left_s = patience.left_s
            assert left_s > 0, f"only {len(received)} of {count} messages came"
            subscription.wait(left_s)
    return received


def pump(
    publication: Publication,
    sent: Sequence[bytes],
    subscriptions: Iterable[Subscription],
    *,
    timeout_s: float = TIMEOUT_S,
) -> list[list[bytes]]:
    """Sends and receives in one thread.  Several receivers are kept in step: where the fastest one
    sets the pace (``fc=max``), a slow one may lose what it did not take."""
    all_subscriptions = list(subscriptions)
    received: list[list[bytes]] = [[] for _ in all_subscriptions]
    patience = Patience(timeout_s)
    first = 0
    while first < len(sent) or any(len(got) < len(sent) for got in received):
        if len(all_subscriptions) == 1 or all(len(got) == first for got in received):
            first += publication.offer_batch(sent[first : first + 64]).accepted
        work = 0
        for subscription, got in zip(all_subscriptions, received, strict=True):
            append = got.append
            work += subscription.poll(lambda m, _h, take=append: take(bytes(m)), 256)
        if not work:
            assert not patience.is_over, (
                f"{first} of {len(sent)} sent, {[len(got) for got in received]} came"
            )
            all_subscriptions[0].wait(0.002)
    return received
