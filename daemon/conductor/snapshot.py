# SPDX-License-Identifier: Apache-2.0
"""Take frozen copies (snapshots) of the conductor's state, for code outside the conductor.

The server, the status report, the trace, the metrics and the simulator read snapshots. A snapshot
never changes and refers to no object of the conductor, so other threads can use it. Positions,
lengths and windows are in bytes; times are in nanoseconds of the conductor's clock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import TypeVar

import attrs

from penstock.core.driver_types import Address, ImageParams, PublicationParams, SlotKind
from penstock.daemon.conductor.actions import ViewLog
from penstock.daemon.conductor.channel.plans import PublicationPlan
from penstock.daemon.conductor.sagas.recv_buffers import wanted_bytes
from penstock.daemon.conductor.sagas.reliance import strategy_name
from penstock.daemon.conductor.sagas.retention import view_of, window_of
from penstock.daemon.conductor.state.machines import EndpointState, ImageState, PublicationState
from penstock.daemon.conductor.state.model import (
    Client,
    Group,
    Image,
    LogFile,
    Publication,
    RecvEndpoint,
    SendEndpoint,
    SubscriberLink,
    Subscription,
)
from penstock.daemon.conductor.state.state import State

_Object = TypeVar("_Object")
_Copy = TypeVar("_Copy")


@attrs.frozen(kw_only=True)
class ClientSnapshot:
    """A client. If ``group_id`` is not 0, the client stands for a consumer group and has no
    process."""

    id: int
    name: str
    pid: int
    uid: int
    alive: bool
    attached: bool
    group_id: int
    publications: int
    subscriptions: int
    counters: int

    @classmethod
    def of(cls, client: Client) -> ClientSnapshot:
        return cls(
            id=client.id, name=client.name, pid=client.pid, uid=client.uid, alive=client.alive,
            attached=client.attached, group_id=client.group_id,
            publications=len(client.publications), subscriptions=len(client.subscriptions),
            counters=len(client.counters),
        )


@attrs.frozen(kw_only=True)
class LogSnapshot:
    """Memory of one log buffer."""

    path: str
    term_length: int
    reserved_terms: int
    reserved_bytes: int

    @classmethod
    def of(cls, log: LogFile) -> LogSnapshot:
        return cls(
            path=log.path, term_length=log.term_length, reserved_terms=log.reserved_terms,
            reserved_bytes=log.reserved_bytes,
        )


@attrs.frozen(kw_only=True)
class LinkSnapshot:
    """A subscription's link to an image or a local publication."""

    counter_id: int
    client_id: int
    subscription_id: int
    resting: bool

    @classmethod
    def of(cls, link: SubscriberLink) -> LinkSnapshot:
        return cls(
            counter_id=link.counter_id, client_id=link.subscription.client.id,
            subscription_id=link.subscription.id, resting=link.resting,
        )


@attrs.frozen(kw_only=True)
class PublicationSnapshot:
    id: int
    plan: PublicationPlan
    params: PublicationParams
    is_ipc: bool
    stream_id: int
    session_id: int
    initial_term_id: int
    exclusive: bool
    slot: int
    clients: int
    subscribers: tuple[LinkSnapshot, ...]
    state: PublicationState
    late_limits: int                    # number of late answers of a Python strategy
    warnings: tuple[str, ...]
    log: LogSnapshot

    @classmethod
    def of(cls, publication: Publication) -> PublicationSnapshot:
        return cls(
            id=publication.id, plan=publication.plan, params=publication.params,
            is_ipc=publication.endpoint is None, stream_id=publication.stream_id,
            session_id=publication.session_id, initial_term_id=publication.initial_term_id,
            exclusive=publication.exclusive, slot=publication.slot,
            clients=len(publication.links),
            subscribers=tuple(map(LinkSnapshot.of, publication.subscribers.values())),
            state=publication.state, late_limits=publication.late_limits,
            warnings=tuple(publication.warnings.values()),
            log=LogSnapshot.of(publication.log),
        )


@attrs.frozen(kw_only=True)
class ImageSnapshot:
    id: int
    params: ImageParams
    channel: str
    stream_id: int
    session_id: int
    source: Address
    slot: int
    strategy: str                       # flow control of its sender, "" unknown
    subscribers: tuple[LinkSnapshot, ...]
    state: ImageState
    released: bool  # the receiver has released it: only slow subscribers read the file
    rejection: str | None               # reason for which an application rejected it
    lost_bytes: int
    late_limits: int                    # number of late answers of a Python congestion control
    rcvbuf_bytes: int                   # receive buffer of its socket, as SO_RCVBUF counts
    rcvbuf_wanted_bytes: int            # receive buffer for its window
    relay_path: tuple[int, ...]         # ids of relays that the stream has passed
    log: LogSnapshot

    @classmethod
    def of(cls, image: Image, state: State) -> ImageSnapshot:
        return cls(
            id=image.id, params=image.params, channel=image.endpoint.channel,
            stream_id=image.stream_id, session_id=image.session_id, source=image.source,
            slot=image.slot, strategy=strategy_name(state, image),
            subscribers=tuple(map(LinkSnapshot.of, image.subscribers.values())),
            state=image.state, released=image.released, rejection=image.rejection,
            lost_bytes=image.lost_bytes,
            late_limits=image.late_limits, rcvbuf_bytes=image.endpoint.buffer_bytes,
            rcvbuf_wanted_bytes=wanted_bytes(image.params.window_bytes),
            relay_path=image.relay_path,
            log=LogSnapshot.of(image.log),
        )


@attrs.frozen(kw_only=True)
class SubscriptionSnapshot:
    id: int
    client_id: int
    channel: str
    stream_id: int
    images: int
    credits: int                        # of each publisher, or of the pool; 0: it grants none
    credit_policy: str                  # of a pool, ""
    withheld: bool
    slots: tuple[int, ...]              # of its readers that grant credits or may skip

    @classmethod
    def of(cls, subscription: Subscription) -> SubscriptionSnapshot:
        plan = subscription.plan
        links = [link for link in subscription.links.values() if plan.credits or link.may_skip]
        return cls(
            id=subscription.id, client_id=subscription.client.id, channel=plan.channel,
            stream_id=subscription.stream_id, images=len(subscription.links),
            credits=subscription.credit_pool.size or plan.credits, credit_policy=plan.credit_policy,
            withheld=subscription.withheld, slots=tuple(link.slot for link in links),
        )


@attrs.frozen(kw_only=True)
class EndpointSnapshot:
    id: int
    direction: str                      # send or receive
    channel: str
    addresses: tuple[str, ...]
    users: int
    state: EndpointState

    @classmethod
    def of(cls, endpoint: SendEndpoint | RecvEndpoint) -> EndpointSnapshot:
        if isinstance(endpoint, SendEndpoint):
            addresses: tuple[str, ...] = (str(endpoint.local),)
            direction, users = "send", len(endpoint.publications)
        else:
            addresses = tuple(str(d.address) for d in endpoint.destinations.values())
            direction, users = "receive", len(endpoint.subscriptions)
        return cls(
            id=endpoint.id, direction=direction, channel=endpoint.channel, addresses=addresses,
            users=users, state=endpoint.state,
        )


@attrs.frozen(kw_only=True)
class GroupLogSnapshot:
    """A log that a consumer group reads or keeps."""

    view: ViewLog
    session_id: int
    window_bytes: int
    strategy: str                       # flow control of its sender, "" unknown, or it has ended
    ended: bool = False
    end_position: int = 0               # valid if ended


@attrs.frozen(kw_only=True)
class GroupSnapshot:
    id: int
    name: str
    channel: str
    stream_id: int
    deadline_ns: int
    logs: tuple[GroupLogSnapshot, ...]

    @classmethod
    def of(cls, group: Group, state: State) -> GroupSnapshot:
        return cls(
            id=group.id, name=group.name, channel=group.channel, stream_id=group.stream_id,
            deadline_ns=group.deadline_ns, logs=tuple(_logs_of(group, state)),
        )


def _logs_of(group: Group, state: State) -> list[GroupLogSnapshot]:
    found = [
        GroupLogSnapshot(
            view=view_of(link.source, link.counter_id), session_id=link.source.session_id,
            window_bytes=window_of(link.source), strategy=strategy_name(state, link.source),
        )
        for subscription in group.client.subscriptions.values()
        for link in subscription.links.values()
    ]
    for kept in group.retained.values():
        live = state.images.get(kept.log_id) or state.publications.get(kept.log_id)
        if live is not None:
            view = view_of(live, kept.counter_id)
        else:
            view = ViewLog(
                log_id=kept.log_id, path=kept.log.path, committed_counter_id=kept.counter_id,
                end_counter_id=-1, kind=SlotKind.IMAGE, slot=-1,
            )
        found.append(
            GroupLogSnapshot(
                view=view, session_id=kept.session_id, window_bytes=kept.window_bytes, strategy="",
                ended=kept.ended, end_position=kept.end_position,
            )
        )
    return found


@attrs.frozen(kw_only=True)
class Snapshot:
    """All objects that are registered at a conductor at one moment."""

    storage_budget_bytes: int
    storage_used_bytes: int
    clients: tuple[ClientSnapshot, ...]
    publications: tuple[PublicationSnapshot, ...]
    images: tuple[ImageSnapshot, ...]
    subscriptions: tuple[SubscriptionSnapshot, ...]
    endpoints: tuple[EndpointSnapshot, ...]
    groups: tuple[GroupSnapshot, ...]
    groups_expired: int
    timers: int                         # deadlines that the conductor waits for


def in_slices(state: State, objects: int) -> Generator[None, None, Snapshot]:
    """Take a snapshot, as a generator that pauses each time it has copied ``objects`` objects.
    Conductor thread.

    The conductor may process requests during a pause. If an object is added or removed during a
    pause, the snapshot may lack this object.
    """
    clients = yield from _sliced(state.clients, ClientSnapshot.of, objects)
    publications = yield from _sliced(state.publications, PublicationSnapshot.of, objects)
    images = yield from _sliced(state.images, partial(ImageSnapshot.of, state=state), objects)
    subscriptions = yield from _sliced(state.subscriptions, SubscriptionSnapshot.of, objects)
    senders = yield from _sliced(state.send_endpoints, EndpointSnapshot.of, objects)
    receivers = yield from _sliced(state.recv_endpoints, EndpointSnapshot.of, objects)
    groups = yield from _sliced(state.groups, partial(GroupSnapshot.of, state=state), objects)
    return Snapshot(
        storage_budget_bytes=state.storage.budget_bytes,
        storage_used_bytes=state.storage.used_bytes,
        clients=clients, publications=publications, images=images, subscriptions=subscriptions,
        endpoints=(*senders, *receivers), groups=groups, groups_expired=state.groups_expired,
        timers=len(state.timers),
    )


def _sliced(
    table: Mapping[int, _Object], copy: Callable[[_Object], _Copy], objects: int
) -> Generator[None, None, tuple[_Copy, ...]]:
    found = []
    for done, number in enumerate(list(table), 1):
        live = table.get(number)
        if live is not None:
            found.append(copy(live))
        if not done % objects:
            yield
    return tuple(found)


def take(state: State) -> Snapshot:
    """Take a snapshot without pauses. Only the conductor's thread may take a snapshot; the duration
    is proportional to the number of objects."""
    slices = in_slices(state, sys.maxsize)
    try:
        while True:
            next(slices)
    except StopIteration as end:
        found: Snapshot = end.value
        return found


@attrs.frozen(kw_only=True)
class InUse:
    """Files, counters and slots of the daemon's directory that registered objects use."""

    logs: frozenset[str]                # paths
    counters: frozenset[int]
    slots: frozenset[tuple[SlotKind, int]]
