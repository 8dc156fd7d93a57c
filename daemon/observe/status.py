# SPDX-License-Identifier: Apache-2.0
"""The status of the daemon: the content of the reply to GetStatus, which ``penstock stat --json``
prints.

The classes define the schema of the status; :func:`to_dict` converts a status to plain data.
Positions are bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import attrs

from penstock.core.admin import Cnc, Shared
from penstock.core.credits import read_credit, read_spent
from penstock.core.driver import Driver
from penstock.core.driver_types import Agent, ReceiverView, SlotKind
from penstock.core.pressure import WATERMARKS, PressureView, SchedulerView, cause_name
from penstock.daemon.conductor.snapshot import (
    ClientSnapshot,
    EndpointSnapshot,
    ImageSnapshot,
    PublicationSnapshot,
    Snapshot,
    SubscriptionSnapshot,
)
from penstock.daemon.groups.status import GroupStatus
from penstock.daemon.strategies import Running, StrategyHost


@attrs.frozen(kw_only=True)
class ClientStatus:
    client_id: int
    name: str
    pid: int
    uid: int
    state: str
    publications: int
    subscriptions: int
    counters: int


@attrs.frozen(kw_only=True)
class ReceiverStatus:
    """State of one receiver of a publication, as the receiver's last status message states it."""

    receiver_id: int
    address: str
    position: int
    window: int
    penstock: bool
    reason: str                         # its own reason to limit the stream, "" none
    reason_client: int                  # its client that lags, 0 unknown
    reason_name: str                    # name of that client, "" not stated
    reason_host: str                    # host of that client, "" not stated
    backlog_bytes: int                  # bytes that this client has not read


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
    rate_bytes_per_s: int               # the lower of ps-rate and the NAK-strength rate; 0: none
    pressure_signals: int               # PRESSURE frames heard
    strategy_failures: int  # failures of a Python strategy: exception, invalid answer, late answer
    cause: str                          # the cause that blocks it now
    culprit: str                        # culprit of that cause, "" unknown
    culprit_client: int                 # the client that lags: of this host, or of the receiver
    culprit_name: str                   # its name, "" unknown
    culprit_awaited: bool               # this daemon keeps its objects; its process has ended
    backlog_bytes: int                  # bytes that this client has not read, 0 unknown
    held_ns: int                        # since when that cause and culprit block it
    blocked_ns: dict[str, int]          # time by cause since the start, with the running interval
    blocked_by_ns: dict[str, int]       # time by culprit, with the same sum
    refused: dict[str, int]             # refused offers, by the cause that bound
    refused_ns: int                     # time from first refusals to next successes
    refused_episodes: int
    queue_depth_bytes: int              # accepted and not sent; IPC: not read by the slowest reader
    queue_peak_bytes: int               # the most of it
    watermark: str                      # normal, high_watermark, paused or low_watermark
    pressure_events: int                # times that publishers reached the depth
    pressure_ns: int                    # from then until the log had drained
    drained_messages: int               # in ended episodes
    policy: str                         # when its log is full, "" as Aeron
    dropped_messages: int               # by that policy
    dropped_bytes: int
    dropped_by: dict[str, int]          # messages, by reason: log_full, storage, rate
    credits_granted: int                # messages that its receivers granted; -1: none grants
    credits_spent: int                  # of these, how many its publishers took; -1
    peers: list[ReceiverStatus]         # live receivers
    log_bytes: int
    # relays that the stream has passed, the first one first
    relay_path: list[str] = attrs.field(factory=list)
    warnings: list[str] = attrs.field(factory=list)     # what defeats back-pressure
    throttled: int = 0                  # offers answered THROTTLED
    deferrals: int = 0                  # times that the governor withheld its data
    waits: int = 0                      # turns before which it waited with other streams
    waited_ns: int = 0                  # total time of these waits


@attrs.frozen(kw_only=True)
class SchedulerStatus:
    """The last measurement of the governor (which delays or throttles streams when the sender is
    overloaded). While the governor is off or the sender is idle, all values of the measurement are
    0."""

    sampled: bool                       # whether the governor has ever taken a sample
    pressure: float                     # 0 to 1
    signals: dict[str, float]           # depth, latency and busy: 0 to 1
    coalesce_ns: int                    # longest time for which a partial datagram waits
    status_interval_ns: int             # least time between status messages
    retry_after_ns: int                 # of throttled publishers; 0: none is throttled
    defers: bool                        # whether streams with a priority below 0 are withheld
    ready: dict[str, int]               # waiting streams by band
    waits: int                          # turns before which a stream waited
    waited_ns: int                      # total time of these waits
    deferrals: int                      # times that data was withheld
    throttled: int                      # offers of the present streams answered THROTTLED


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
    foreign_datagrams: int = 0          # dropped datagrams of sources that it does not follow
    window_bytes: int = 0               # receiver window
    rcvbuf_bytes: int = 0               # receive buffer of its socket, as SO_RCVBUF counts
    rcvbuf_wanted_bytes: int = 0        # receive buffer for its window
    congestion: str = "static"          # congestion control, with its options
    # failures of a Python class: exception, invalid answer, late answer
    congestion_failures: int = 0
    # relays that the stream has passed, the first one first
    relay_path: list[str] = attrs.field(factory=list)


@attrs.frozen(kw_only=True)
class SkipStatus:
    """The amount of data of one session that one reader skipped for one ``reason``."""

    reader: int                         # its slot in shared memory
    messages: int                       # in gaps whose number is known
    bytes: int
    reason: str                         # "behind" or "retention"


@attrs.frozen(kw_only=True)
class SubscriptionStatus:
    subscription_id: int
    client_id: int
    channel: str
    stream_id: int
    images: int
    credits: int                        # of each publisher, or of the pool; 0: it grants none
    credit_policy: str                  # that divides a pool, "" each publisher gets them all
    withheld: bool
    credits_granted: int                # messages, of all its publishers, since they joined
    credits_returned: int
    credits_outstanding: int            # granted and not returned
    credits_leaked: int                 # lost with their handles
    skipped: list[SkipStatus] = attrs.field(factory=list)   # of readers that skipped data
    skipped_messages: int = 0           # the sum of `skipped`
    unread_bytes: int = 0               # of the reader that is furthest behind


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
    scheduler: SchedulerStatus


def to_dict(status: DaemonStatus) -> dict[str, Any]:
    return attrs.asdict(status)


def client_status(client: ClientSnapshot) -> ClientStatus:
    return ClientStatus(
        client_id=client.id, name=client.name, pid=client.pid, uid=client.uid,
        state="active" if client.attached else "awaited", publications=client.publications,
        subscriptions=client.subscriptions, counters=client.counters,
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
    """Return the unread bytes of the lagging client: from its position if it is local, else as
    stated."""
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
    peers: bool = True, awaited: Collection[int] = (),
) -> PublicationStatus | None:
    """Return the status of a publication; None if the publication ended after the snapshot. Any
    thread.

    :param awaited: the ids of this daemon's clients whose processes have ended.
    :param peers: whether to read the publication's receivers too.
    """
    try:
        live = driver.publication_status(publication.id)
        found = driver.publication_receivers(publication.id) if peers else ()
    except KeyError:
        return None
    view = shared.read_pressure(publication.slot)
    granted, spent = read_spent(shared, publication.slot) or (-1, -1)
    levels = view.levels_at(now_ns)
    effects = view.scheduled()
    depth = max(0, live.producer_position - live.consumer_position)
    if shared.slot_id(SlotKind.PUBLICATION, publication.slot) != publication.id:
        return None
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
        culprit_awaited=view.pid > 0 and client in awaited,
        backlog_bytes=_backlog(view, publication, live.producer_position, counter),
        held_ns=view.held_ns(now_ns),
        blocked_ns=view.by_cause(now_ns),
        blocked_by_ns=view.by_culprit(now_ns),
        refused=view.refusals(),
        refused_ns=view.refused_ns,
        refused_episodes=view.refused_episodes,
        queue_depth_bytes=depth,
        # The sender measures the peak in its next turn: the view never shows less than the depth.
        queue_peak_bytes=max(levels.peak_bytes, depth),
        watermark=WATERMARKS.get(levels.watermark, "normal"),
        pressure_events=levels.pressed_episodes,
        pressure_ns=levels.pressed_ns,
        drained_messages=levels.drained_messages,
        policy=publication.plan.policy,
        dropped_messages=view.dropped_messages,
        dropped_bytes=view.dropped_bytes,
        dropped_by=view.dropped_by(),
        credits_granted=granted,
        credits_spent=spent,
        peers=[_receiver(receiver) for receiver in found],
        log_bytes=publication.log.reserved_bytes,
        relay_path=_relay_path(publication.params.relay_path),
        warnings=list(publication.warnings),
        throttled=effects.throttled,
        deferrals=effects.deferrals,
        waits=effects.waits,
        waited_ns=effects.waited_ns,
    )


def scheduler_status(
    view: SchedulerView, publications: Sequence[PublicationStatus]
) -> SchedulerStatus:
    """Return the part of the status that describes the sender's scheduler and governor."""
    return SchedulerStatus(
        sampled=view.sampled_ns != 0,
        pressure=view.pressure,
        signals=view.signals,
        coalesce_ns=view.coalesce_ns,
        status_interval_ns=view.status_interval_ns,
        retry_after_ns=view.retry_after_ns,
        defers=view.defers,
        ready=view.ready,
        waits=view.waits,
        waited_ns=view.waited_ns,
        deferrals=view.deferrals,
        throttled=sum(publication.throttled for publication in publications),
    )


def _relay_path(ids: Sequence[int]) -> list[str]:
    """Return ids as ``penstock relay`` shows its own."""
    return [f"{relay:016x}" for relay in ids]


def _failures(owner: PublicationSnapshot | ImageSnapshot, running: Running | None) -> int:
    """Return the number of calls of a Python class that raised, gave an invalid answer or were
    late."""
    answers = 0 if running is None else running.raised + running.nonsense
    return owner.late_limits + answers


def image_status(
    image: ImageSnapshot, driver: Driver, running: Running | None = None
) -> ImageStatus | None:
    """Return the status of an image, or None if the image has ended or the receiver has released
    the image. After the release, possibly only the image's log file remains, because slow
    subscribers still read this file. Any thread may read a status with this function."""
    if image.released:
        return None
    try:
        live = driver.image_status(image.id)
    except KeyError:
        return None
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
        relay_path=_relay_path(image.relay_path),
    )


def unread_bytes(
    snapshot: Snapshot, publications: Sequence[PublicationStatus], images: Sequence[ImageStatus],
    counter: Callable[[int], int],
) -> dict[int, int]:
    """Return the unread bytes of each subscription that has a reader. If a subscription has several
    readers, the slowest reader counts. A spy can read all data that the sender has sent; an IPC
    reader can read all published data."""
    ends = {image.image_id: image.position for image in images}
    sent = {row.publication_id: (row.position, row.consumer_position) for row in publications}
    for publication in snapshot.publications:
        if publication.id in sent:
            ends[publication.id] = sent[publication.id][not publication.is_ipc]
    found: dict[int, int] = {}
    sources: list[PublicationSnapshot | ImageSnapshot] = [
        *snapshot.publications, *snapshot.images
    ]
    for source in sources:
        for link in source.subscribers:
            if source.id in ends and not link.resting:
                behind = max(0, ends[source.id] - counter(link.counter_id))
                found[link.subscription_id] = max(behind, found.get(link.subscription_id, 0))
    return found


def subscription_status(
    subscription: SubscriptionSnapshot, shared: Shared, unread: int = 0
) -> SubscriptionStatus:
    """Return the status of a subscription. The subscription's credits are the sum of its credits on
    all images and publications that it reads. Any thread."""
    readers = {
        slot: read_credit(shared, slot) for slot in subscription.slots
        if shared.slot_id(SlotKind.SUBSCRIBER, slot) == subscription.id
    }
    views = readers.values()
    granted, returned = sum(v.granted for v in views), sum(v.returned for v in views)
    skipped = sum(v.skipped_messages + v.expired_messages for v in views)
    return SubscriptionStatus(
        subscription_id=subscription.id,
        client_id=subscription.client_id,
        channel=subscription.channel,
        stream_id=subscription.stream_id,
        images=subscription.images,
        credits=subscription.credits,
        credit_policy=subscription.credit_policy,
        withheld=subscription.withheld,
        credits_granted=granted,
        credits_returned=returned,
        credits_outstanding=max(granted - returned, 0),
        credits_leaked=sum(v.leaked for v in views),
        skipped_messages=skipped,
        unread_bytes=unread,
        skipped=[
            SkipStatus(reader=slot, messages=messages, bytes=passed, reason=reason)
            for slot, v in readers.items()
            for reason, messages, passed in (
                ("behind", v.skipped_messages, v.skipped_bytes),
                ("retention", v.expired_messages, v.expired_bytes),
            ) if passed
        ],
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
    """Properties of the daemon that do not change while it runs."""

    version: str
    pid: int
    directory: str
    daemon_id: int
    epoch: int
    threading: str
    start_ns: int


def take(
    facts: DaemonFacts, snapshot: Snapshot, driver: Driver, cnc: Cnc, shared: Shared, *,
    now_ns: int, malformed: int, strategies: StrategyHost, groups: Sequence[GroupStatus],
    peers: bool = True,
) -> DaemonStatus:
    """Return the daemon's status: the objects that ``snapshot`` lists, with the positions of these
    objects at the time of the call. Any thread may read a status with this function.

    :param peers: whether to read the receivers of each publication too.
    """
    awaited = {client.id for client in snapshot.clients if not client.attached}
    found = (
        publication_status(
            publication, driver, shared, counter=cnc.counter, now_ns=now_ns,
            running=strategies.get(publication.id), peers=peers, awaited=awaited,
        )
        for publication in snapshot.publications
    )
    images = (
        image_status(image, driver, strategies.get(image.id)) for image in snapshot.images
    )
    publications = [publication for publication in found if publication is not None]
    arrived = [image for image in images if image is not None]
    unread = unread_bytes(snapshot, publications, arrived, cnc.counter)
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
        publications=publications,
        images=arrived,
        subscriptions=[
            subscription_status(s, shared, unread.get(s.id, 0)) for s in snapshot.subscriptions
        ],
        endpoints=[endpoint_status(e) for e in snapshot.endpoints],
        groups=list(groups),
        groups_expired=snapshot.groups_expired,
        scheduler=scheduler_status(shared.read_scheduler(now_ns), publications),
    )
