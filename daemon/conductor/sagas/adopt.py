# SPDX-License-Identifier: Apache-2.0
"""Adopt the registrations of a dead daemon (docs/decisions/0030).

The conductor creates all recorded objects with their old ids, counters, slots, addresses and logs.
Because the objects keep their ids and addresses, clients and remote hosts notice a restart of the
daemon only as a pause. If the conductor cannot create a recorded object, it continues without this
object. When the client that owned an omitted object connects again, the daemon notifies this
client, and the client adds the object again. The conductor creates images before subscriptions
listen, so that the receiver knows the images' sessions when the first datagram arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from penstock.core.driver_types import Address, ObjectKind, SlotKind, SubscriberParams
from penstock.daemon.conductor.actions import (
    AddImageObject,
    AddImageSubscriber,
    AddPublicationClient,
    AddPublicationObject,
    AddPublicationSubscriber,
    AddRecvDestination,
    AddSendDestination,
    OpenRecvEndpoint,
    OpenSendEndpoint,
    ReadCounter,
    RejectImageObject,
    ReleaseLog,
    RemoveObject,
    SetCounter,
)
from penstock.daemon.conductor.channel.counters import ChannelStatus
from penstock.daemon.conductor.channel.plans import (
    parse,
    publication_plan,
)
from penstock.daemon.conductor.saga import EXCLUSIVE, Refused, Saga
from penstock.daemon.conductor.sagas import (
    congestion,
    credit_pools,
    custom,
    fan_in,
    publications,
)
from penstock.daemon.conductor.sagas.clients import lose_client
from penstock.daemon.conductor.sagas.credits import is_frozen, set_credits
from penstock.daemon.conductor.sagas.groups import adopt_group
from penstock.daemon.conductor.sagas.image_params import granting
from penstock.daemon.conductor.sagas.images import leave_half_open, show
from penstock.daemon.conductor.sagas.isolating import isolation_of
from penstock.daemon.conductor.sagas.linking import link_image, link_publication, report_refusal
from penstock.daemon.conductor.sagas.lost_credits import watch_losses
from penstock.daemon.conductor.sagas.recv_buffers import follow_window
from penstock.daemon.conductor.sagas.recv_endpoints import add_interest
from penstock.daemon.conductor.sagas.recv_endpoints import release_if_unused as release_recv
from penstock.daemon.conductor.sagas.retention import keep_log, settle_orphan
from penstock.daemon.conductor.sagas.send_endpoints import release_if_unused as release_send
from penstock.daemon.conductor.sagas.storage import watch
from penstock.daemon.conductor.sagas.subscriptions import plan_of
from penstock.daemon.conductor.state.machines import ImageState, PublicationState
from penstock.daemon.conductor.state.model import (
    TERMS,
    Client,
    CreditShare,
    Image,
    LogFile,
    Publication,
    RecvEndpoint,
    Retained,
    SendEndpoint,
    SubscriberLink,
    Subscription,
)
from penstock.daemon.conductor.state.registry import (
    erase,
    note_client,
    note_image,
    note_link,
    note_publication,
    note_recv_endpoint,
    note_send_endpoint,
    note_subscription,
)
from penstock.daemon.conductor.state.state import State

Registrations = Mapping[tuple[str, tuple[int, ...]], Mapping[str, Any]]
_OVER = (PublicationState.CLOSING.value, PublicationState.DONE.value)


def adopt(state: State, records: Registrations, dead: frozenset[int]) -> Saga[None]:
    """Create all recorded objects, each after the objects to which it refers. At the end, release
    the resources that no object uses."""
    yield EXCLUSIVE
    makers: dict[str, Callable[..., Saga[None]]] = {
        "client": _client,
        "group": _group,
        "send_endpoint": _send_endpoint,
        "recv_endpoint": _recv_endpoint,
        "publication": _publication,
        "subscription": _subscription,
        "image": partial(_image, links=_links_by_source(records)),
        "retained": _retained,
        "link": _link,
    }
    for kind, make in makers.items():
        for (its_kind, key), fields in records.items():
            if its_kind != kind:
                continue
            try:
                yield from make(state, key, fields, records)
            except Refused as refused:
                erase(state, kind, *key)
                report_refusal(state, f"{kind} {key[0]} of the dead daemon", refused)
    for image in list(state.images.values()):
        if image.established and not image.shown:       # the daemon died while it linked readers
            yield from show(state, image)
    for subscription in list(state.subscriptions.values()):
        if subscription.endpoint is not None:
            yield from add_interest(
                state, subscription.endpoint, subscription.stream_id, subscription.plan.session_id
            )
        fan_in.divide(state, subscription)
    for group in list(state.groups.values()):
        for retained in list(group.retained.values()):
            gone = retained.log_id not in state.images and \
                retained.log_id not in state.publications
            if gone and not retained.ended:
                yield from settle_orphan(state, group, retained)
    _let_go(state)
    _await_clients(state, dead)
    state.event(
        "adopted", clients=len(state.clients), publications=len(state.publications),
        images=len(state.images), subscriptions=len(state.subscriptions),
    )


def _let_go(state: State) -> None:
    """Continue to end the objects that their owners had already left."""
    for publication in list(state.publications.values()):
        if not publication.links:
            publications.orphan(state, publication)
    for image in list(state.images.values()):
        # The log is deleted after the receiver has released it.
        if image.established and not image.subscribers:
            image.state = ImageState.DONE
            image.endpoint.images.pop((image.stream_id, image.session_id), None)
            state.emit(RemoveObject(kind=ObjectKind.IMAGE, object_id=image.id))
            erase(state, "image", image.id)
    for send_endpoint in list(state.send_endpoints.values()):
        release_send(state, send_endpoint)
    for recv_endpoint in list(state.recv_endpoints.values()):
        for stream_id in {image.stream_id for image in recv_endpoint.images.values()}:
            leave_half_open(state, recv_endpoint, stream_id)
        release_recv(state, recv_endpoint)


def _await_clients(state: State, dead: frozenset[int]) -> None:
    """Remove clients that are known to be dead at once, and others that do not return in time."""

    def lose(client: Client) -> None:
        if client.alive and not client.attached:
            client.alive = False
            state.runner.start(lose_client(state, client), lambda value, error: None)

    for client in list(state.clients.values()):
        if client.group_id:
            continue
        if client.id in dead and not client.linger_ns:
            lose(client)
        else:
            wait_ns = max(client.linger_ns, state.settings.reattach_timeout_ns)
            deadline_ns = state.now_ns + wait_ns
            state.timers.at(deadline_ns, partial(lose, client))


# ---- one of each kind ----------------------------------------------------------------------------


def _client(
    state: State, key: tuple[int, ...], fields: Mapping[str, Any], _all: Registrations
) -> Saga[None]:
    client = Client(id=key[0], attached=False, **fields)
    state.clients[client.id] = client
    note_client(state, client)
    yield from ()


def _group(
    state: State, key: tuple[int, ...], fields: Mapping[str, Any], _all: Registrations
) -> Saga[None]:
    adopt_group(state, key[0], dict(fields))
    yield from ()


def _retained(
    state: State, key: tuple[int, ...], fields: Mapping[str, Any], _all: Registrations
) -> Saga[None]:
    group = state.groups.get(key[0])
    if group is None:
        raise Refused("unknown_group", "its group has gone")
    retained = Retained(group_id=key[0], log_id=key[1], **fields)
    keep_log(state, group, retained)
    yield from ()


def _rescued(
    state: State, subscription: Subscription, log_id: int, link: Mapping[str, Any],
    records: Registrations,
) -> Saga[bool]:
    """Keep the unread data of a group readable if its stream could not be adopted."""
    group = state.groups.get(subscription.client.group_id)
    source = records.get(("image", (log_id,))) or records.get(("publication", (log_id,)))
    if group is None or source is None:
        return False
    retained = Retained(
        group_id=group.id, log_id=log_id, counter_id=link["counter_id"], slot=link["slot"],
        stream_id=source["stream_id"], session_id=source["session_id"],
        initial_term_id=source["initial_term_id"], mtu=source["mtu"],
        window_bytes=source["params"].window_bytes, log=source["log"],
        join_position=link["join_position"],
    )
    keep_log(state, group, retained)
    yield from settle_orphan(state, group, retained)
    return True


def _send_endpoint(
    state: State, key: tuple[int, ...], fields: Mapping[str, Any], _all: Registrations
) -> Saga[None]:
    values = dict(fields)
    destinations = values.pop("destinations")
    endpoint = SendEndpoint(id=key[0], **values)
    endpoint.local = yield from _reopen(endpoint)
    state.emit(SetCounter(counter_id=endpoint.status_counter, value=ChannelStatus.ACTIVE))
    state.send_endpoints[endpoint.id] = endpoint
    for destination in destinations:
        yield AddSendDestination(
            endpoint_id=endpoint.id, destination_id=destination.id, address=destination.address
        )
        endpoint.destinations[destination.id] = destination
    note_send_endpoint(state, endpoint)


def _reopen(endpoint: SendEndpoint) -> Saga[Address]:
    """Open the socket of a sender again and return its address.

    Receivers follow the source address, so the port stays the same. If another process has taken
    a port that the kernel had chosen, the sender continues with another port: receivers that were
    not adopted too accept its SETUP, because that states the same daemon with a later epoch.
    """
    data = endpoint.params.data
    if endpoint.peer_address is not None:
        data = attrs.evolve(data, connect=endpoint.peer_address)
    bind = data.bind.with_port(endpoint.local.port)
    params = attrs.evolve(endpoint.params, data=attrs.evolve(data, bind=bind))
    try:
        same: Address = yield OpenSendEndpoint(params=params)
    except Refused as refused:
        if refused.code != "address_in_use" or data.bind.port:
            raise
        other: Address = yield OpenSendEndpoint(params=attrs.evolve(params, data=data))
        return other
    return same


def _recv_endpoint(
    state: State, key: tuple[int, ...], fields: Mapping[str, Any], _all: Registrations
) -> Saga[None]:
    values = dict(fields)
    destinations = values.pop("destinations")
    endpoint = RecvEndpoint(id=key[0], **values)
    assert endpoint.params is not None
    yield OpenRecvEndpoint(params=endpoint.params)
    try:
        for destination in destinations:
            socket = destination.params.socket
            if not destination.params.multicast:
                bind = socket.bind.with_port(destination.address.port)
                socket = attrs.evolve(socket, bind=bind)
            params = attrs.evolve(
                destination.params, socket=socket, control=destination.control
            )
            yield AddRecvDestination(endpoint_id=endpoint.id, params=params)
            endpoint.destinations[destination.id] = destination
    except Refused:
        state.emit(RemoveObject(kind=ObjectKind.RECV_ENDPOINT, object_id=endpoint.id))
        raise
    state.emit(SetCounter(counter_id=endpoint.status_counter, value=ChannelStatus.ACTIVE))
    state.recv_endpoints[endpoint.id] = endpoint
    note_recv_endpoint(state, endpoint)


def _settle_log(state: State, log: LogFile) -> None:
    """Settle operations that were in progress at the death: released terms may still have
    memory."""
    log.settle()
    if not log.is_whole and log.reserved_terms < TERMS:
        state.emit(
            ReleaseLog(
                path=log.path, term_length=log.term_length, kept_from=log.kept_position,
                kept_to=log.last_end,
            )
        )


def _publication(
    state: State, key: tuple[int, ...], fields: Mapping[str, Any], _all: Registrations
) -> Saga[None]:
    values = dict(fields)
    life, end_reason = values.pop("state"), values["end_reason"]
    links: dict[int, int] = values.pop("links")
    endpoint_id = values.pop("endpoint_id")
    if life in _OVER or end_reason == "revoked" or values["end_confirmed"]:
        erase(state, "publication", *key)
        return                          # all its data was sent and confirmed, or abandoned
    endpoint = state.send_endpoints.get(endpoint_id)
    if endpoint is None and endpoint_id:
        raise Refused("no_interface", "the channel of the object could not be opened")
    channel = values.pop("channel")
    plan = attrs.evolve(
        publication_plan(parse(channel), channel, state.settings),
        mtu=values.pop("mtu"), window_bytes=values.pop("window_bytes"),
        linger_ns=values.pop("linger_ns"), term_length=values["log"].term_length,
    )
    publication = Publication(id=key[0], plan=plan, endpoint=endpoint, **values)
    log = publication.log
    _settle_log(state, log)
    yield AddPublicationObject(
        params=attrs.evolve(
            publication.params, adopted=True, start_position=publication.start_position,
            reserved_position=log.notified_position, kept_position=log.kept_position,
        )
    )
    state.publications[publication.id] = publication
    custom.start(state, publication)
    state.storage.adopt(log.reserved_bytes)
    watch(state, publication)
    if endpoint is not None:
        endpoint.publications.add(publication.id)
    for registration_id, client_id in links.items():
        client = state.clients.get(client_id)
        if client is None:
            continue
        if client not in publication.links.values():
            yield AddPublicationClient(
                publication_id=publication.id, client_slot=client.slot
            )
        publication.links[registration_id] = client
        client.publications[registration_id] = publication
    note_publication(state, publication)


def _subscription(
    state: State, key: tuple[int, ...], fields: Mapping[str, Any], _all: Registrations
) -> Saga[None]:
    client = state.clients.get(fields["client_id"])
    if client is None:
        raise Refused("not_leased", "its client has gone")
    endpoint = state.recv_endpoints.get(fields["endpoint_id"])
    if endpoint is None and fields["endpoint_id"]:
        raise Refused("no_interface", "the channel of the object could not be opened")
    subscription = Subscription(
        id=key[0], client=client, stream_id=fields["stream_id"], endpoint=endpoint,
        plan=plan_of(state, client, fields["channel"], fields["stream_id"]),
        spy_key=fields["spy_key"], spy_tag=fields["spy_tag"],
        withheld=fields["withheld"],
    )
    state.subscriptions[subscription.id] = subscription
    client.subscriptions[subscription.id] = subscription
    if endpoint is not None:
        endpoint.subscribe(subscription)
    note_subscription(state, subscription)
    yield from ()


def _links_by_source(records: Registrations) -> dict[int, list[tuple[int, Mapping[str, Any]]]]:
    """Return the recorded links of each image and publication, each link with the id of its
    subscription."""
    found: dict[int, list[tuple[int, Mapping[str, Any]]]] = {}
    for (kind, key), link in records.items():
        if kind == "link":
            found.setdefault(key[1], []).append((key[0], link))
    return found


def _image(
    state: State, key: tuple[int, ...], fields: Mapping[str, Any], records: Registrations, *,
    links: Mapping[int, list[tuple[int, Mapping[str, Any]]]],
) -> Saga[None]:
    values = dict(fields)
    endpoint = state.recv_endpoints.get(values.pop("endpoint_id"))
    if endpoint is None:
        raise Refused("no_interface", "the channel of the object could not be opened")
    image = Image(id=key[0], endpoint=endpoint, established_ns=state.now_ns, **values)
    _settle_log(state, image.log)
    slowest = -1
    for subscription_id, link in links.get(image.id, ()):
        if subscription_id in state.subscriptions and not link["resting"]:
            position: int = yield ReadCounter(counter_id=link["counter_id"])
            slowest = position if slowest < 0 else min(slowest, position)
    received: int = yield ReadCounter(counter_id=image.params.position_counter_id)
    image.established = image.shown or received > image.join_position
    params = attrs.evolve(
        image.params, adopted=True, half_open=not image.established,
        consumption=slowest if image.shown else image.join_position,
        reserved_position=image.log.notified_position,
        destination=0 if len(endpoint.destinations) == 1 else -1,
    )
    # The image states credits before its readers are there again: the sender may have forgotten the
    # dead daemon, and would take a status message without credits for permission to send.
    params = granting(params, [
        each for each in endpoint.subscriptions.of_stream(image.stream_id)
        if each.wants_session(image.session_id)
    ])
    yield from follow_window(state, endpoint, image.params.window_bytes)
    yield AddImageObject(params=params)
    if image.rejection is not None:
        yield RejectImageObject(image_id=image.id, reason=image.rejection)
        image.end_reason = "rejected"
    state.images[image.id] = image
    endpoint.images[(image.stream_id, image.session_id)] = image
    endpoint.held_by += 1
    state.storage.adopt(image.log.reserved_bytes)
    watch(state, image)
    if image.established:
        congestion.start(state, image)
    else:
        state.half_open_bytes += image.log.reserved_bytes
    note_image(state, image)


def _link(
    state: State, key: tuple[int, ...], fields: Mapping[str, Any], records: Registrations
) -> Saga[None]:
    subscription = state.subscriptions.get(key[0])
    source = state.images.get(key[1]) or state.publications.get(key[1])
    if subscription is None:
        raise Refused("unknown_registration", "the subscription of the link no longer exists")
    group = state.groups.get(subscription.client.group_id)
    if group is not None and key[1] in group.retained:
        erase(state, "link", *key)      # the daemon died between the two records of a stream's end
        return
    if source is None and (yield from _rescued(state, subscription, key[1], fields, records)):
        erase(state, "link", *key)
        return
    if source is None:
        raise Refused("unknown_registration", "the stream of the link no longer exists")
    if fields["resting"]:               # it was to join again later: it joins now
        erase(state, "link", *key)
        if isinstance(source, Image):
            yield from link_image(state, subscription, source)
        else:
            yield from link_publication(state, subscription, source)
        return
    plan = subscription.plan
    isolation = isolation_of(plan, source)
    given = dict(fields)
    credit = CreditShare(share=given.pop("share"), held=given.pop("held"))
    link = SubscriberLink(
        subscription=subscription, source=source, isolated=isolation.may_miss, credit=credit,
        **given,
    )
    credits = max(credit_pools.adopt(link), 1) if plan.credits else 0
    params = SubscriberParams(
        position_counter_id=link.counter_id, slot=link.slot, client_slot=subscription.client.slot,
        join_position=link.join_position, credits=credits, credit_burst=plan.credit_burst,
        frozen=bool(plan.credits) and is_frozen(link),
        tether=plan.tether or isolation.may_miss, rejoin=plan.rejoin,
        isolated=isolation.may_miss, depth_bytes=isolation.depth_bytes,
        depth_messages=isolation.depth_messages,
    )
    if isinstance(source, Image):
        yield AddImageSubscriber(image_id=source.id, params=params)
    else:
        yield AddPublicationSubscriber(publication_id=source.id, params=params)
    source.subscribers[subscription.id] = link
    subscription.links[source.id] = link
    note_link(state, link)
    if link.credit.lowered:
        yield set_credits(link)
    credit_pools.watch(state, subscription)
    watch_losses(state, subscription)


# ---- what is in use ------------------------------------------------------------------------------


def sources(state: State) -> list[Publication | Image]:
    """Return the publications and images; each of them has a log."""
    return [*state.publications.values(), *state.images.values()]


def kept_logs(state: State) -> list[Retained]:
    """Return the logs that consumer groups retain although the stream has ended."""
    return [kept for group in state.groups.values() for kept in group.retained.values()]


def logs_in_use(state: State) -> set[str]:
    """Return the paths of two kinds of logs: logs of live streams, and logs that consumer groups
    retain although the stream has ended."""
    logs = {source.log.path for source in sources(state)}
    return logs | {kept.log.path for kept in kept_logs(state)}


def counters_in_use(state: State) -> set[int]:
    """Return the ids of the counters that registered objects use."""
    used: set[int] = set()
    for client in state.clients.values():
        used.update(client.counters.values())
    for send_endpoint in state.send_endpoints.values():
        used |= {send_endpoint.status_counter, send_endpoint.address_counter,
                 send_endpoint.destinations_counter}
    for recv_endpoint in state.recv_endpoints.values():
        used.add(recv_endpoint.status_counter)
        used.update(d.counter_id for d in recv_endpoint.destinations.values())
    for source in sources(state):
        used.update(source.counters)
        used.update(link.counter_id for link in source.subscribers.values())
    used.update(kept.counter_id for kept in kept_logs(state))
    return used


def slots_in_use(state: State) -> set[tuple[SlotKind, int]]:
    """Return the slots of penstock.dat that registered objects use."""
    used = {(SlotKind.CLIENT, client.slot) for client in state.clients.values()}
    for publication in state.publications.values():
        used.add((SlotKind.PUBLICATION, publication.slot))
    for image in state.images.values():
        used.add((SlotKind.IMAGE, image.slot))
    for source in sources(state):
        used.update((SlotKind.SUBSCRIBER, link.slot) for link in source.subscribers.values())
    used.update((SlotKind.SUBSCRIBER, kept.slot) for kept in kept_logs(state))
    used.update((SlotKind.GROUP, group.slot) for group in state.groups.values())
    return used
