# SPDX-License-Identifier: Apache-2.0
"""Every credit has an owner. This oracle checks credits when no message is in flight any more. A
reader then owes no credit for a message that its application has released. The publishers of a
stream may use as many credits as its readers grant. If they may use fewer, a credit is lost; if
they may use more, a credit was granted twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.config import uri
from penstock.core.credits import CreditState, CreditView
from penstock.sim.world.apps import Publisher, Subscriber, parse_credits, same_stream

if TYPE_CHECKING:
    from penstock.sim.world import World


def lost_credits(world: World) -> Iterator[str]:
    """Return the streams whose credits do not add up now. Credits that are on their way back do not
    add up, so the caller lets the world run before the result is a violation."""
    for number, publisher in enumerate(world.publishers):
        readers = list(_readers(world, publisher))
        if not readers or not all(_counts(publisher, *reader) for reader in readers):
            continue
        for subscriber, view in readers:
            assert view is not None
            yield from _of_reader(world, publisher, subscriber, view)
        wanted = min(max(view.credits, view.burst) for _, view in readers if view is not None)
        counts = publisher.credit_counts()
        if counts is None:
            yield f"publisher {number} needs no credits, though {len(readers)} readers grant them"
            continue
        granted, spent = counts
        ledger = publisher.ledgers[-1]
        exist = world.native.ledger_messages(ledger) + world.native.ledger_dropped(ledger)
        # On IPC the count begins with the first reader that grants credits.
        if spent > exist or (spent < exist and not uri.parse(publisher.script.channel).is_ipc):
            yield f"publishers of session {publisher.session_id} spent {spent} credits on {exist}"
        if granted - spent != wanted:
            yield (
                f"publisher {number} may send {granted - spent} messages ({granted} granted, "
                f"{spent} spent) with nothing in flight, its readers grant {wanted}"
            )
    yield from _pools(world)


def _pools(world: World) -> Iterator[str]:
    """The shares of a pool's publishers are no more than the pool."""
    shares: dict[tuple[int, int], int] = {}
    sizes: dict[tuple[int, int], int] = {}
    for number, subscriber in enumerate(world.subscribers):
        script = subscriber.script
        if subscriber.is_open and subscriber.host.running and "ps-credit-policy=" in script.channel:
            pool = (subscriber.host.index, script.client or 1000 + number)
            sizes[pool] = parse_credits(script.channel)[0]
            shares[pool] = shares.get(pool, 0) + sum(
                view.credits for view in subscriber.credits() if view.state == CreditState.GRANTING
            )
    for pool, share in shares.items():
        if share > sizes[pool]:
            yield f"host {pool[0]}: a pool of {sizes[pool]} credits is divided into {share}"


def _readers(
    world: World, publisher: Publisher
) -> Iterator[tuple[Subscriber, CreditView | None]]:
    """Return the subscribers that grant credits to a publisher. None: the subscriber has no image
    of the publisher's session."""
    if not publisher.is_open or not publisher.host.running:
        return
    for subscriber in world.subscribers:
        grants = any(parse_credits(subscriber.script.channel))
        if grants and subscriber.is_open and same_stream(publisher.script, subscriber.script):
            yield subscriber, subscriber.credits_of(publisher.session_id)


def _counts(publisher: Publisher, subscriber: Subscriber, view: CreditView | None) -> bool:
    """Return whether the reader grants all its credits to this publisher."""
    return (
        view is not None and view.state == CreditState.GRANTING and view.leaked == 0
        and subscriber.host.running
        and subscriber.is_at_end(publisher.session_id, publisher.ledgers[-1])
    )


def _of_reader(
    world: World, publisher: Publisher, subscriber: Subscriber, view: CreditView
) -> Iterator[str]:
    number = world.subscribers.index(subscriber)
    if view.returned != view.arrived:
        yield (
            f"subscriber {number} has returned {view.returned} credits of session "
            f"{publisher.session_id}, and released {view.arrived} messages"
        )
    if view.granted != view.returned + max(view.credits, view.burst):
        yield (
            f"subscriber {number} grants {view.granted} messages of session "
            f"{publisher.session_id}, it has returned {view.returned} and grants "
            f"{max(view.credits, view.burst)} more"
        )
