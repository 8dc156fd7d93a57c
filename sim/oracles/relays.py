# SPDX-License-Identifier: Apache-2.0
"""Check the streams behind relays.

The readers of a relay's target get all messages that the relay's source carried, once, in order. C
code compares each message with the source (``sim/native/world/ps_sim_relay.c``). This module checks
the end of a run: nothing is missing, and a relay whose target leads back to its own path has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.sim.world.apps import Subscriber
from penstock.sim.world.relays import RelayApp

if TYPE_CHECKING:
    from penstock.sim.world import World


def _sources(world: World, relay: RelayApp) -> Iterator[tuple[int, int]]:
    """Return session id and ledger of each session that the relay must read now."""
    stream = relay.script.source_stream
    for publisher in world.publishers:
        if publisher.script.stream_id == stream and publisher.is_open and publisher.ledgers:
            yield publisher.session_id, publisher.ledgers[-1]
    for other in world.relays:
        if other.script.target_stream == stream and not other.script.circle:
            for _, publication, ledger in other.sessions():
                yield publication.session_id, ledger


def _readers(world: World, relay: RelayApp) -> Iterator[tuple[int, Subscriber]]:
    for number, subscriber in enumerate(world.subscribers):
        if subscriber.script.stream_id == relay.script.target_stream and subscriber.is_open:
            yield number, subscriber


def lagging(world: World) -> Iterator[str]:
    """Return the relays that have something left to relay, and the readers behind them that have
    something left to read."""
    for relay in world.relays:
        if relay.is_over or not relay.host.running:
            continue
        name = f"relay {relay.number}"
        if not relay.is_open:
            yield f"{name} does not run"
        found = {image.session_id: ledger for image, _, ledger in relay.sessions()}
        for session_id, source in _sources(world, relay):
            sent = world.native.ledger_messages(source)
            target = found.get(session_id)
            done = 0 if target is None else world.native.relay_next(target)
            if sent > 0 and done < sent:
                yield f"{name} has relayed {done} of {sent} messages of session {session_id}"
        for _, publication, target in relay.sessions():
            for number, subscriber in _readers(world, relay):
                if world.native.ledger_messages(target) > 0 and \
                        not subscriber.is_at_end(publication.session_id, target):
                    got = subscriber.reader(target).next
                    yield f"subscriber {number} has {got} messages of {name}"


def relay_faults(world: World) -> Iterator[str]:
    """Return the violations of the run that concern relays."""
    yield from lagging(world)
    for relay in world.relays:
        if relay.fault:
            yield f"relay {relay.number} ended: {relay.fault}"
        if relay.script.circle != bool(relay.loop):
            yield (
                f"relay {relay.number} {'leads' if relay.script.circle else 'does not lead'} back "
                f"to its own path, and ended with {relay.loop!r}"
            )
        for number, subscriber in _readers(world, relay):
            for ledger in relay.ledgers:
                got = subscriber.reader(ledger)
                script = subscriber.script
                if not script.may_miss and got.missed > 0:
                    yield f"subscriber {number} missed {got.missed} messages of a relay"
                elif not (script.may_join_late or script.may_miss) and got.first > 0:
                    yield f"subscriber {number} joined a relay's session at message {got.first}"
