# SPDX-License-Identifier: Apache-2.0
"""Check the streams behind relays.

The readers of a relay's target get all messages that the relay's source carried, once, in order. C
code compares each message with the source (``sim/native/world/ps_sim_relay.c``). This module checks
the end of a run. Nothing is missing. A relay whose target leads back to its own path has ended. The
messages that a publisher offered have reached the last reader, or gaps reported them on the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.sim.core import RelayAccount
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


def awaits_gaps(world: World) -> bool:
    """Return whether a relay has relayed all messages of a session, but has not yet taken the
    reports of all dropped ones."""
    return any(
        account.first == 0 and account.told != world.native.ledger_dropped(account.source)
        for relay in world.relays for account in _accounts(world, relay)
    )


def _accounts(world: World, relay: RelayApp) -> Iterator[RelayAccount]:
    """The accounts of the sessions that the relay reads now."""
    for _, _, ledger in relay.sessions():
        yield world.native.relay_account(ledger)


def _unaccounted(world: World, relay: RelayApp) -> Iterator[str]:
    """Compare what a relay has published and what gaps reported to it with its source."""
    script = relay.script
    for account in _accounts(world, relay):
        name = f"relay {relay.number}"
        if account.first > 0 and not script.may_join_late and script.restart_ns < script.linger_ns:
            yield f"{name} joined a session of its source at message {account.first}"
        if account.first + account.messages + account.left_out != account.next:
            yield (
                f"{name} has published {account.messages} of the messages from {account.first} to "
                f"{account.next}, gaps reported {account.left_out}"
            )
        dropped = world.native.ledger_dropped(account.source)
        if account.first == 0 and account.told != dropped:
            yield f"gaps reported {account.told} dropped messages to {name}, {dropped} were dropped"


def _lost_on_the_way(world: World) -> Iterator[str]:
    """Compare the messages that each publisher offered with those that arrived behind all relays,
    and those that gaps reported."""
    accounts = {
        ledger: world.native.relay_account(ledger)
        for relay in world.relays for _, _, ledger in relay.sessions()
    }
    published = {each.ledgers[-1] for each in world.publishers if each.is_open and each.ledgers}
    for relay in world.relays:
        for _, _, last in relay.sessions():
            path = [accounts[last]]
            while path[-1].source in accounts:
                path.append(accounts[path[-1].source])
            origin = path[-1].source
            # A session may have ended with the host of its relay, and not have timed out yet.
            if origin not in published or any(account.first > 0 for account in path):
                continue
            offered = world.native.ledger_messages(origin) + world.native.ledger_dropped(origin)
            reported = sum(account.left_out + account.told for account in path)
            for number, subscriber in _readers(world, relay):
                got = subscriber.reader(last)
                if got.first == 0 and got.messages + got.missed + reported != offered:
                    yield (
                        f"{offered} messages were offered, subscriber {number} behind "
                        f"{len(path)} relays got {got.messages}, gaps reported {reported}"
                    )


def relay_faults(world: World) -> Iterator[str]:
    """Return the violations of the run that concern relays."""
    yield from lagging(world)
    yield from _lost_on_the_way(world)
    for relay in world.relays:
        if relay.fault:
            yield f"relay {relay.number} ended: {relay.fault}"
        for session_id in sorted(relay.forgotten):
            yield f"a daemon forgot that relay {relay.number} has rejected session {session_id}"
        if relay.script.circle != bool(relay.loop):
            yield (
                f"relay {relay.number} {'leads' if relay.script.circle else 'does not lead'} back "
                f"to its own path, and ended with {relay.loop!r}"
            )
        yield from _unaccounted(world, relay)
        for number, subscriber in _readers(world, relay):
            for ledger in relay.ledgers:
                got = subscriber.reader(ledger)
                script = subscriber.script
                if not script.may_miss and got.missed > 0:
                    yield f"subscriber {number} missed {got.missed} messages of a relay"
                elif not (script.may_join_late or script.may_miss) and got.first > 0:
                    yield f"subscriber {number} joined a relay's session at message {got.first}"
