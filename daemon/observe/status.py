# SPDX-License-Identifier: Apache-2.0
"""The daemon's status: what GetStatus answers and ``penstock stat --json`` prints.

The classes are the schema; :func:`to_dict` makes plain data of it.  Positions are bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from penstock.core.admin import Cnc, Shared
from penstock.core.driver import Driver
from penstock.core.driver_types import Agent, ReceiverView
from penstock.core.pressure import PressureView, cause_name
from penstock.daemon.conductor.snapshot import (
    ClientSnapshot,
    EndpointSnapshot,
    ImageSnapshot,
    PublicationSnapshot,
    Snapshot,
    SubscriptionSnapshot,
)
from penstock.daemon.groups.logs import GroupLogs
from penstock.daemon.groups.status import GroupStatus, group_status
from penstock.daemon.strategies import Running, StrategyHost


@attrs.frozen(kw_only=True)
class ClientStatus:
    client_id: int
    name: str
    pid: int
    uid: int
    publications: int
    subscriptions: int
    counters: int


@attrs.frozen(kw_only=True)
class ReceiverStatus:
    """A receiver of a publication, as its last status message has it."""

    receiver_id: int
    address: str
    position: int
    window: int
    penstock: bool
    reason: str                         # why it holds the stream by itself, "" it does not
    reason_client: int                  # its client that is behind, 0 unknown
    reason_name: str                    # of that client, "" not stated
    reason_host: str                    # where it runs, "" not stated
    backlog_bytes: int                  # what that client has not read


@attrs.frozen(kw_only=True)
class PublicationStatus:
    publication_id: int
    channel: str
    stream_id: int
    session_id: int
    state: str
    exclusive: bool
    clients: int
    local_subscribers: int
    connected: bool
    receivers: int
    position: int
    consumer_position: int
    limit: int
    strategy: str                       # flow control, as written
    rate_bytes_per_s: int               # ps-rate or NAK-strength, whichever is less; 0: none
    pressure_signals: int               # PRESSURE frames heard
    strategy_failures: int              # of a strategy in Python: raised, nonsense, late
    cause: str                          # what holds it now
    culprit: str                        # through whose fault, "" unknown
    culprit_client: int                 # the client behind that: of this host or the receiver's
    culprit_name: str                   # its name, "" unknown
    backlog_bytes: int                  # what it has not read, 0 unknown
    held_ns: int                        # since when that cause and culprit hold it
    blocked_ns: dict[str, int]          # by cause, since the start, the running interval included
    blocked_by_ns: dict[str, int]       # by culprit, in the same way: equal sums
    refused: dict[str, int]             # offers, by the cause that bound then
    refused_ns: int                     # from first refusals to next successes
    refused_episodes: int
    peers: list[ReceiverStatus]         # live receivers
    log_bytes: int


@attrs.frozen(kw_only=True)
class ImageStatus:
    image_id: int
    channel: str
    stream_id: int
    session_id: int
    source: str
    strategy: str                       # flow control of its sender, "" unknown
    state: str
    subscribers: int
    position: int
    high_water: int
    slowest_subscriber: int
    gaps: int
    lost_bytes: int
    log_bytes: int
    foreign_datagrams: int = 0          # of sources that are not followed: dropped
    window_bytes: int = 0               # receiver window
    rcvbuf_bytes: int = 0               # receive buffer of its socket, as SO_RCVBUF counts
    rcvbuf_wanted_bytes: int = 0        # what its window asks for
    congestion: str = "static"          # congestion control, with its options
    congestion_failures: int = 0        # of a class in Python: raised, nonsense, late


@attrs.frozen(kw_only=True)
class SubscriptionStatus:
    subscription_id: int
    client_id: int
    channel: str
    stream_id: int
    images: int


@attrs.frozen(kw_only=True)
class EndpointStatus:
    endpoint_id: int
    direction: str                      # send or receive
    channel: str
    addresses: list[str]
    users: int
    state: str


@attrs.frozen(kw_only=True)
class DaemonStatus:
    version: str
    pid: int
    directory: str
    daemon_id: int
    epoch: int
    threading: str
    uptime_s: float
    storage_budget_bytes: int
    storage_used_bytes: int
    malformed_messages: int
    duty_cycles: dict[str, int]
    clients: list[ClientStatus]
    publications: list[PublicationStatus]
    images: list[ImageStatus]
    subscriptions: list[SubscriptionStatus]
    endpoints: list[EndpointStatus]
    groups: list[GroupStatus]
    groups_expired: int


def to_dict(status: DaemonStatus) -> dict[str, Any]:
    return attrs.asdict(status)


def client_status(client: ClientSnapshot) -> ClientStatus:
    return ClientStatus(
        client_id=client.id, name=client.name, pid=client.pid, uid=client.uid,
        publications=client.publications, subscriptions=client.subscriptions,
        counters=client.counters,
    )


def _receiver(view: ReceiverView) -> ReceiverStatus:
    return ReceiverStatus(
        receiver_id=view.receiver_id,
        address="" if view.address is None else str(view.address),
        position=view.position,
        window=view.window,
        penstock=view.capabilities != 0,
        reason="" if view.reason == 0 else cause_name(view.reason),
        reason_client=view.reason_client,
        reason_name=view.reason_name,
        reason_host=view.reason_host,
        backlog_bytes=view.backlog_bytes,
    )


def _backlog(
    view: PressureView, publication: PublicationSnapshot, position: int,
    counter: Callable[[int], int],
) -> int:
    """What the client that is behind has not read: of this host by its position, else as stated."""
    if view.culprit.address or not view.culprit.id:
        return view.backlog_bytes
    read = [
        counter(link.counter_id) for link in publication.subscribers
        if link.client_id == view.culprit.id and not link.resting
    ]
    return max(0, position - min(read)) if read else 0


def publication_status(
    publication: PublicationSnapshot, driver: Driver, shared: Shared, *,
    counter: Callable[[int], int], now_ns: int, running: Running | None = None,
) -> PublicationStatus:
    live = driver.publication_status(publication.id)
    view = shared.read_pressure(publication.slot)
    peers = [_receiver(v) for v in driver.publication_receivers(publication.id)]
    client, name = view.client
    return PublicationStatus(
        publication_id=publication.id,
        channel=publication.plan.channel,
        stream_id=publication.stream_id,
        session_id=publication.session_id,
        state=publication.state.value,
        exclusive=publication.exclusive,
        clients=publication.clients,
        local_subscribers=len(publication.subscribers),
        connected=live.is_connected,
        receivers=live.receivers,
        position=live.producer_position,
        consumer_position=live.consumer_position,
        limit=live.publisher_limit,
        strategy=publication.params.strategy,
        rate_bytes_per_s=live.rate_bytes_per_s,
        pressure_signals=live.pressure_signals,
        strategy_failures=_failures(publication, running),
        cause=cause_name(view.cause),
        culprit=view.culprit_text,
        culprit_client=client,
        culprit_name=name,
        backlog_bytes=_backlog(view, publication, live.producer_position, counter),
        held_ns=view.held_ns(now_ns),
        blocked_ns=view.by_cause(now_ns),
        blocked_by_ns=view.by_culprit(now_ns),
        refused=view.refusals(),
        refused_ns=view.refused_ns,
        refused_episodes=view.refused_episodes,
        peers=peers,
        log_bytes=publication.log.reserved_bytes,
    )


def _failures(owner: PublicationSnapshot | ImageSnapshot, running: Running | None) -> int:
    """Calls of a class in Python that raised, answered nonsense, or were late."""
    answers = 0 if running is None else running.raised + running.nonsense
    return owner.late_limits + answers


def image_status(
    image: ImageSnapshot, driver: Driver, running: Running | None = None
) -> ImageStatus | None:
    """None once the receiver has let go of it: what is left is a file for slow subscribers."""
    if image.released:
        return None
    live = driver.image_status(image.id)
    return ImageStatus(
        image_id=image.id,
        channel=image.channel,
        stream_id=image.stream_id,
        session_id=image.session_id,
        source=str(image.source),
        strategy=image.strategy,
        state=image.state.value,
        subscribers=len(image.subscribers),
        position=live.position,
        high_water=live.high_water,
        slowest_subscriber=live.slowest_subscriber,
        gaps=live.gaps,
        lost_bytes=image.lost_bytes,
        log_bytes=image.log.reserved_bytes,
        foreign_datagrams=live.foreign_datagrams,
        window_bytes=image.params.window_bytes,
        rcvbuf_bytes=image.rcvbuf_bytes,
        rcvbuf_wanted_bytes=image.rcvbuf_wanted_bytes,
        congestion=image.params.congestion_name or "static",
        congestion_failures=_failures(image, running),
    )


def subscription_status(subscription: SubscriptionSnapshot) -> SubscriptionStatus:
    return SubscriptionStatus(
        subscription_id=subscription.id,
        client_id=subscription.client_id,
        channel=subscription.channel,
        stream_id=subscription.stream_id,
        images=subscription.images,
    )


def endpoint_status(endpoint: EndpointSnapshot) -> EndpointStatus:
    return EndpointStatus(
        endpoint_id=endpoint.id,
        direction=endpoint.direction,
        channel=endpoint.channel,
        addresses=list(endpoint.addresses),
        users=endpoint.users,
        state=endpoint.state.value,
    )


@attrs.frozen(kw_only=True)
class DaemonFacts:
    """Facts that do not change while the daemon runs."""

    version: str
    pid: int
    directory: str
    daemon_id: int
    epoch: int
    threading: str
    start_ns: int


def take(
    facts: DaemonFacts, snapshot: Snapshot, driver: Driver, cnc: Cnc, shared: Shared, *,
    now_ns: int, malformed: int, strategies: StrategyHost, logs: GroupLogs,
) -> DaemonStatus:
    """Return the daemon's status: a snapshot and live positions.  Conductor thread."""
    images = (
        image_status(image, driver, strategies.get(image.id)) for image in snapshot.images
    )
    return DaemonStatus(
        version=facts.version,
        pid=facts.pid,
        directory=facts.directory,
        daemon_id=facts.daemon_id,
        epoch=facts.epoch,
        threading=facts.threading,
        uptime_s=(now_ns - facts.start_ns) / 1e9,
        storage_budget_bytes=snapshot.storage_budget_bytes,
        storage_used_bytes=snapshot.storage_used_bytes,
        malformed_messages=malformed,
        duty_cycles={agent.name.lower(): driver.duty_cycles(agent) for agent in Agent},
        clients=[client_status(client) for client in snapshot.clients],
        publications=[
            publication_status(
                p, driver, shared, counter=cnc.counter, now_ns=now_ns,
                running=strategies.get(p.id),
            )
            for p in snapshot.publications
        ],
        images=[image for image in images if image is not None],
        subscriptions=[subscription_status(s) for s in snapshot.subscriptions],
        endpoints=[endpoint_status(e) for e in snapshot.endpoints],
        groups=[group_status(group, logs, now_ns=now_ns) for group in snapshot.groups],
        groups_expired=snapshot.groups_expired,
    )
