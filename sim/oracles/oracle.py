# SPDX-License-Identifier: Apache-2.0
"""Conditions that a run must meet.

During the run, C code checks each message: its content, its order, and whether a missing message
was reported in a gap. This module checks the state at the end of a run: all data has arrived, and
the costs are within the scenario's budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.core.driver_types import SystemCounter
from penstock.daemon.conductor.sagas.custom import DEADLINE_NS
from penstock.sim.congestion import MoodyWindow
from penstock.sim.core import ReaderStatistics
from penstock.sim.oracles import relays
from penstock.sim.oracles.measure import jain_ppm
from penstock.sim.oracles.relays import lagging, relay_faults
from penstock.sim.scenario import MS_NS, SECOND_NS, HostScript, Scenario
from penstock.sim.strategies import Moody
from penstock.sim.world.apps import Publisher, Subscriber, same_stream
from penstock.sim.world.host import Host

if TYPE_CHECKING:
    from penstock.sim.world import World

PPM: Final = 1_000_000
#: Most NAKs for each datagram that the network lost or displaced, in every scenario.
_NAKS_PER_LOSS: Final = 60
#: Most datagrams beyond an edge that count as lost one by one.
_SINGLE_OVER_RUNS: Final = 16
#: An image whose gap cannot be repaired any more (``max``) asks until its liveness ends, 10 s.
_NAKS_PER_IMAGE: Final = 600
#: Two heartbeats of the sender come within this time, and no link is faster than this.
_FORGED_NS: Final = SECOND_NS
_FORGED_DELAY_NS: Final = 1000
_LEAST_TERM_BYTES: Final = 64 * 1024
_HEADER_BYTES: Final = 32
_PAYLOAD_BYTES: Final = 1408 - _HEADER_BYTES


def pairs(world: World) -> Iterator[tuple[Publisher, Subscriber]]:
    """Return all pairs of a publisher and an open subscriber of its stream. The subscriber must
    reach the end of this stream."""
    for subscriber in world.subscribers:
        for publisher in world.publishers:
            if subscriber.script.refuses:
                continue
            if subscriber.is_open and same_stream(publisher.script, subscriber.script):
                yield publisher, subscriber


def _is_behind(world: World, publisher: Publisher, subscriber: Subscriber) -> bool:
    if not publisher.ledgers or not publisher.is_open:
        return False
    ledger = publisher.ledgers[-1]
    sent = world.native.ledger_messages(ledger)
    return sent > 0 and not subscriber.is_at_end(publisher.session_id, ledger)


def caught_up(world: World) -> bool:
    """Return whether all data was sent and every subscriber has reached the end of its streams."""
    return all(
        publisher.finished or not publisher.host.running for publisher in world.publishers
    ) and not any(_is_behind(world, *pair) for pair in pairs(world)) and not any(lagging(world))


def awaits_gaps(world: World) -> bool:
    """Return whether a subscriber or relay at the end of a stream has not yet taken the report of
    the stream's last gap."""
    return relays.awaits_gaps(world) or any(
        subscriber.takes_gaps and publisher.ledgers and publisher.is_open
        and subscriber.reader(publisher.ledgers[-1]).untold > 0
        for publisher, subscriber in pairs(world)
    )


def verdict(world: World) -> list[str]:
    """Return the violations of the run."""
    if world.scenario.hostile:
        return []
    return [
        *_incomplete(world), *relay_faults(world), *_apart(world), *_wire(world), *_budget(world)
    ]


# ---- delivery ------------------------------------------------------------------------------------


def _incomplete(world: World) -> Iterator[str]:
    for number, publisher in enumerate(world.publishers):
        if not publisher.finished and publisher.host.running:
            yield (
                f"publisher {number} sent {publisher.sent} of {publisher.script.count} messages "
                f"in {world.now_ns / SECOND_NS:.1f} s"
            )
    for publisher, subscriber in pairs(world):
        yield from _missing(world, publisher, subscriber)


def _missing(world: World, publisher: Publisher, subscriber: Subscriber) -> Iterator[str]:
    number = world.subscribers.index(subscriber)
    for ledger in publisher.ledgers:
        sent = world.native.ledger_messages(ledger)
        got = subscriber.reader(ledger)
        is_last = ledger == publisher.ledgers[-1] and publisher.is_open
        if is_last and _is_behind(world, publisher, subscriber):
            joined = publisher.session_id in subscriber.joined
            yield (
                f"subscriber {number} {'has' if joined else 'never joined, has'} {got.next} of "
                f"{sent} messages of session {ledger}"
            )
        elif subscriber.takes_gaps and got.first >= 0 and is_last and got.untold > 0:
            yield f"subscriber {number} was not told of {got.untold} messages of session {ledger}"
        elif _saw_all(subscriber, got) and got.dropped != world.native.ledger_dropped(ledger):
            yield (
                f"subscriber {number} was told of {got.dropped} dropped messages of session "
                f"{ledger}, its publishers of {world.native.ledger_dropped(ledger)}"
            )
        elif not subscriber.script.may_miss and got.missed > 0:
            yield f"subscriber {number} missed {got.missed} messages of session {ledger}"
        elif not (subscriber.script.may_join_late or subscriber.script.may_miss) and got.first > 0:
            yield f"subscriber {number} joined session {ledger} at message {got.first}"


def _saw_all(subscriber: Subscriber, got: ReaderStatistics) -> bool:
    """Whether it has read a stream whose publication may drop from its start."""
    return (
        "ps-policy=drop" in subscriber.script.channel and got.first == 0 and got.missed == 0
        and not subscriber.unavailable and len(subscriber.available) == 1
    )


def _never_full(publisher: Publisher, world: World) -> bool:
    """Whether the log of the publisher always has room: on IPC under ``drop_oldest``, without a
    rate, on a host that lives, has storage in time, and steps once a millisecond or more."""
    channel = publisher.script.channel
    skips = "ps-policy=drop_oldest" in channel and "ps-rate" not in channel
    return skips and channel.startswith("aeron:ipc") and all(
        machine.crash_ns is None and _has_storage(publisher, machine) and machine.cycle_ns <= MS_NS
        for machine in world.scenario.machines if machine.host == publisher.script.host
    )


def _has_storage(publisher: Publisher, machine: HostScript) -> bool:
    """Whether the conductor answers a request for storage before the publisher is at the end of its
    storage. An idle stream keeps a window of storage, which is a term on IPC, and requests more
    when a message arrives. The request leaves in the agent's next cycle, the conductor reads it in
    its next turn, and the agent reads the answer a cycle later. If the agent's ring is small, other
    events may keep the request out of it for several turns."""
    if machine.budget_bytes is not None or machine.conductor_ns == 0:
        return machine.budget_bytes is None
    script = publisher.script
    fragments = -(-max(script.size_high, 1) // _PAYLOAD_BYTES)
    message = script.size_high + fragments * 2 * _HEADER_BYTES  # at most, with alignment
    fills_ns = _LEAST_TERM_BYTES // message * script.interval_ns
    answer_ns = machine.conductor_ns + 2 * machine.cycle_ns
    return "event_capacity" not in dict(machine.driver) and answer_ns <= fills_ns


# ---- streams apart -------------------------------------------------------------------------------


def _apart(world: World) -> Iterator[str]:
    """Check the promises to single applications."""
    for number, publisher in enumerate(world.publishers):
        held_ns = sum(statistics.blocked_ns for statistics in publisher.statistics())
        most_ns = publisher.script.blocked_ns
        if most_ns is not None and held_ns > most_ns:
            yield f"publisher {number} was held for {held_ns} ns, {most_ns} at most"
        dropped = sum(map(world.native.ledger_dropped, publisher.ledgers))
        if dropped > 0 and _never_full(publisher, world):
            yield f"publisher {number} dropped {dropped} messages though its readers skip"
    for number, subscriber in enumerate(world.subscribers):
        late_ns = max(
            (
                reader.latency_ns
                for publisher in world.publishers
                for ledger in publisher.ledgers
                for reader in subscriber.readers(ledger)
            ),
            default=0,
        )
        most_ns = subscriber.script.latency_ns
        if most_ns is not None and late_ns > most_ns:
            yield f"subscriber {number} had a message after {late_ns} ns, {most_ns} at most"
        if most_ns is not None and subscriber.unavailable:
            yield f"subscriber {number} lost its image"
        if subscriber.script.refuses and subscriber.joined:
            yield f"subscriber {number} joined a stream whose policy contradicts its own"


# ---- cost ----------------------------------------------------------------------------------------


def _forged_naks(scenario: Scenario) -> int:
    """Return the number of NAKs that forged heartbeats may cause: each receiver requests what such
    a heartbeat states until the sender's own heartbeats withdraw it. Its NAKs are 16 answers of the
    sender apart at most (``ps_nak_retry_ns``).
    """
    forged = sum(
        (one.until_ns - one.from_ns) // one.interval_ns + 1
        for one in scenario.misfits if one.kind == "forges"
    )
    each = 20 + _FORGED_NS // (16 * 2 * max(scenario.link.delay_ns, _FORGED_DELAY_NS))
    return forged * scenario.hosts * each


def _wire(world: World) -> Iterator[str]:
    wire = world.network.wire()
    if wire.overruns:
        yield f"{wire.overruns} datagrams went beyond every window that a receiver had stated"
    if wire.broken or wire.malformed:
        yield f"{wire.broken} datagrams broke their SETUP, {wire.malformed} no rule allows"
    network = world.network.statistics()
    harm = (
        network.lost + network.queue_full + network.buffer_full + network.corrupted
        + network.reordered + network.duplicated + network.refused
    )
    # A daemon that continues its images requests what came while no daemon ran.
    harm += network.unreachable if any(host.script.adopt for host in world.hosts) else 0
    jitters = world.scenario.link.jitter_ns > 0 or world.scenario.links
    hopeless = sum(len(subscriber.unavailable) for subscriber in world.subscribers)
    allowed = 20 + _NAKS_PER_IMAGE * hopeless + _NAKS_PER_LOSS * harm
    allowed += network.delivered if jitters else 0  # late looks like lost
    # Data beyond the edge is dropped, and is requested like lost data: until an answer comes.
    # Under NAK-strength control many datagrams in a row may lie beyond it.
    over = sum(host.over_runs for host in world.hosts)
    allowed += over + _NAKS_PER_LOSS * min(over, _SINGLE_OVER_RUNS)
    # Data without storage is dropped, too. Each range of it is one gap, which fills datagram by
    # datagram. Only senders that keep to no window send such data.
    unstored = world.native.unstored()
    allowed += unstored.datagrams + _NAKS_PER_LOSS * unstored.ranges
    allowed += _forged_naks(world.scenario)
    if wire.naks > allowed:
        yield f"{wire.naks} NAKs for {harm} datagrams harmed"
    for host in world.hosts:
        if host.running:
            # A second source of a session is one entry in the error log, once a followed source.
            moody = any(MoodyWindow.__name__ in s.channel for s in world.scenario.subscribers)
            moved = any(other.script.adopt for other in world.hosts)
            circle = any(relay.script.circle for relay in world.relays)
            refuses = any(s.refuses for s in world.scenario.subscribers)
            yield from _counted(
                host, more=network.forged > 0, moody_windows=moody, moved=moved,
                rejects=circle or refuses,
            )
            yield from host.untold()


def _counted(
    host: Host, *, more: bool, moody_windows: bool, moved: bool, rejects: bool
) -> Iterator[str]:
    counters = host.counters(SystemCounter.ERRORS, SystemCounter.SHORT_SENDS)
    full = bool(host.script.full) or host.script.short_send_ppm > 0
    late = host.script.strategy_delay_ns > DEADLINE_NS
    # Reported, though maybe by a daemon that has died since.
    before = sum(
        name in ("reader_outrun", "receive_buffer_short", "strategy_silent", "congestion_silent")
        or (name == "refused" and ("dead daemon" in fields or "slots of kind" in fields))
        for _, name, fields in host.events
    )
    # Each image has an object of its own, which may have complained before the image ended.
    ended = sum(name == "image_state" for _, name, _ in host.events)
    before += 2 * ended * moody_windows
    # A relay rejects the stream that leads back to it, until the stream has ended. A receiver whose
    # policy contradicts that of a stream answers each SETUP so.
    before += rejects * sum(
        name in ("publication_error", "refused") for _, name, _ in host.events
    )
    # Datagrams of a daemon that died may arrive behind those of the new daemon.
    before += moved * sum(name == "second_source" for _, name, _ in host.events)
    errors = counters[SystemCounter.ERRORS]
    complaints = 0
    for running in host.strategies():
        made = running.strategy
        if running.name.endswith((Moody.__name__, MoodyWindow.__name__)):
            before += 2 * host.script.adopt     # to whom it complained, too
            complaints += (running.raised > 0) + (running.nonsense > 0)
        if isinstance(made, Moody | MoodyWindow):
            notified = running.raised, running.nonsense
            if notified != (made.raised, made.nonsense):
                yield f"{host.name} counted {notified} answers of {running.name} that were none"
    # Events come as often as the sender reports, log lines less often.
    joins = sum(name in ("join_expired", "join_refused") for _, name, _ in host.events)
    before += joins
    if errors < complaints or (errors > complaints + before and not (late or more)):
        yield f"{host.name} counted {errors} errors, {complaints} were to be told"
    if counters[SystemCounter.SHORT_SENDS] and not full:
        yield f"{host.name} counted short sends"


def _budget(world: World) -> Iterator[str]:
    budget, wire = world.scenario.budget, world.network.wire()
    network = world.network.statistics()
    ended = world.finished_ns
    readers = [
        reader
        for publisher, subscriber in pairs(world)
        for ledger in publisher.ledgers
        for reader in subscriber.readers(ledger)
    ]
    missed = sum(reader.missed for reader in readers)
    gaps = sum(reader.gaps for reader in readers)
    blocked = [
        sum(statistics.blocked_ns for statistics in publisher.statistics())
        for publisher in world.publishers
    ]
    goodput = [
        reader.bytes * SECOND_NS // max(1, ended - publisher.script.start_ns)
        for publisher, subscriber in pairs(world)
        for reader in subscriber.readers(publisher.ledgers[-1])
        if publisher.ledgers
    ]
    rates = world.meter.rates()
    most = [
        ("ended_ns", ended, budget.end_before_ns),
        ("naks", wire.naks, budget.naks),
        ("naks_per_loss_ppm", _share(wire.naks, network.lost), budget.naks_per_loss_ppm),
        ("resent_ppm", _share(wire.resent_bytes, wire.data_bytes), budget.resent_ppm),
        (
            "status_messages_ppm",
            _share(wire.status_messages, wire.data),
            budget.status_messages_ppm,
        ),
        ("ext", wire.ext, budget.ext),
        ("missed", missed, budget.missed_most),
        ("blocked_ns", max(blocked, default=0), budget.blocked_ns),
        ("rate", max(rates, default=0), budget.rate_most),
    ]
    least = [
        ("ended_ns", ended, budget.end_after_ns),
        ("ext", wire.ext, budget.ext_least),
        ("missed", missed, budget.missed_least),
        ("gaps", gaps, budget.gaps_least),
        ("goodput", min(goodput, default=0), budget.goodput_least),
        ("rate", min(rates, default=0), budget.rate_least),
        ("fairness_ppm", jain_ppm(rates), budget.fairness_least_ppm),
    ]
    for name, value, bound in most:
        if bound is not None and value > bound:
            yield f"{name} is {value}, above the budget of {bound}"
    for name, value, bound in least:
        if bound is not None and value < bound:
            yield f"{name} is {value}, below the budget of {bound}"


def _share(part: int, whole: int) -> int:
    return part * PPM // max(1, whole)
