# SPDX-License-Identifier: Apache-2.0
"""The daemon's status: what GetStatus answers and ``penstock stat --json`` prints.

The classes are the schema; :func:`to_dict` makes plain data of it.  Positions are bytes.
"""

from __future__ import annotations

from typing import Any

import attrs

from penstock.core.admin import Cnc, Shared
from penstock.core.driver import Driver
from penstock.core.driver_types import Agent, Cause
from penstock.daemon.conductor.model import (
    Client,
    Image,
    Publication,
    RecvEndpoint,
    SendEndpoint,
    Subscription,
)
from penstock.daemon.conductor.world import World


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
    cause: str                          # what holds it now
    blocked_ns: dict[str, int]          # by cause, since the start
    log_bytes: int


@attrs.frozen(kw_only=True)
class ImageStatus:
    image_id: int
    channel: str
    stream_id: int
    session_id: int
    source: str
    state: str
    subscribers: int
    position: int
    high_water: int
    slowest_subscriber: int
    gaps: int
    lost_bytes: int
    log_bytes: int


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


def to_dict(status: DaemonStatus) -> dict[str, Any]:
    return attrs.asdict(status)


def client_status(client: Client) -> ClientStatus:
    return ClientStatus(
        client_id=client.id, name=client.name, pid=client.pid, uid=client.uid,
        publications=len(client.publications), subscriptions=len(client.subscriptions),
        counters=len(client.counters),
    )


def publication_status(
    publication: Publication, driver: Driver, shared: Shared
) -> PublicationStatus:
    live = driver.publication_status(publication.id)
    view = shared.read_pressure(publication.slot)
    names = {int(cause): cause.name.lower() for cause in Cause}
    blocked = {
        names.get(index, f"cause_{index}"): value
        for index, value in enumerate(view.blocked_ns) if value
    }
    return PublicationStatus(
        publication_id=publication.id,
        channel=publication.plan.channel,
        stream_id=publication.stream_id,
        session_id=publication.session_id,
        state=publication.state.value,
        exclusive=publication.exclusive,
        clients=len(publication.links),
        local_subscribers=len(publication.subscribers),
        connected=live.is_connected,
        receivers=live.receivers,
        position=live.producer_position,
        consumer_position=live.consumer_position,
        limit=live.publisher_limit,
        cause=names.get(view.cause, f"cause_{view.cause}"),
        blocked_ns=blocked,
        log_bytes=publication.log.reserved_bytes,
    )


def image_status(image: Image, driver: Driver) -> ImageStatus | None:
    """None once the receiver has let go of it: what is left is a file for slow subscribers."""
    if image.released:
        return None
    live = driver.image_status(image.id)
    return ImageStatus(
        image_id=image.id,
        channel=image.endpoint.channel,
        stream_id=image.stream_id,
        session_id=image.session_id,
        source=str(image.source),
        state=image.state.value,
        subscribers=len(image.subscribers),
        position=live.position,
        high_water=live.high_water,
        slowest_subscriber=live.slowest_subscriber,
        gaps=live.gaps,
        lost_bytes=image.lost_bytes,
        log_bytes=image.log.reserved_bytes,
    )


def subscription_status(subscription: Subscription) -> SubscriptionStatus:
    return SubscriptionStatus(
        subscription_id=subscription.id,
        client_id=subscription.client.id,
        channel=subscription.plan.channel,
        stream_id=subscription.stream_id,
        images=len(subscription.links),
    )


def endpoint_status(endpoint: SendEndpoint | RecvEndpoint) -> EndpointStatus:
    sends = isinstance(endpoint, SendEndpoint)
    if isinstance(endpoint, SendEndpoint):
        addresses, users = [str(endpoint.local)], len(endpoint.publications)
    else:
        addresses = [str(d.address) for d in endpoint.destinations.values()]
        users = len(endpoint.subscriptions)
    return EndpointStatus(
        endpoint_id=endpoint.id,
        direction="send" if sends else "receive",
        channel=endpoint.channel,
        addresses=addresses,
        users=users,
        state=endpoint.state.value,
    )


@attrs.frozen(kw_only=True)
class DaemonFacts:
    """What does not change while the daemon runs."""

    version: str
    pid: int
    directory: str
    daemon_id: int
    epoch: int
    threading: str
    start_ns: int


def take(
    facts: DaemonFacts, world: World, driver: Driver, cnc: Cnc, shared: Shared, *, now_ns: int,
    malformed: int,
) -> DaemonStatus:
    """A snapshot.  Conductor thread."""
    images = (image_status(image, driver) for image in world.images.values())
    return DaemonStatus(
        version=facts.version,
        pid=facts.pid,
        directory=facts.directory,
        daemon_id=facts.daemon_id,
        epoch=facts.epoch,
        threading=facts.threading,
        uptime_s=(now_ns - facts.start_ns) / 1e9,
        storage_budget_bytes=world.storage.budget_bytes,
        storage_used_bytes=world.storage.used_bytes,
        malformed_messages=malformed,
        duty_cycles={agent.name.lower(): driver.duty_cycles(agent) for agent in Agent},
        clients=[client_status(client) for client in world.clients.values()],
        publications=[
            publication_status(p, driver, shared) for p in world.publications.values()
        ],
        images=[image for image in images if image is not None],
        subscriptions=[subscription_status(s) for s in world.subscriptions.values()],
        endpoints=[
            endpoint_status(e)
            for table in (world.send_endpoints, world.recv_endpoints)
            for e in table.values()
        ],
    )
