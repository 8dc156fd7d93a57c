# SPDX-License-Identifier: Apache-2.0
"""Grant leases to clients, execute each client's commands in order, and clean up after a client's
death."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

import attrs

from penstock.config.protocol.control import (
    AddCounter,
    AddDestination,
    AddPublication,
    AddSubscription,
    CounterReady,
    Done,
    Failure,
    LeaseRequest,
    Message,
    PublicationError,
    RejectImage,
    RemoveCounter,
    RemoveDestination,
    RemovePublication,
    RemoveSubscription,
    Resume,
    Resumed,
    SubscriptionResumed,
    WithholdCredits,
)
from penstock.core.driver_types import SlotKind, SystemCounter
from penstock.daemon.conductor.actions import (
    AddToSystemCounter,
    AllocateCounter,
    AllocateSlot,
    DescribeClient,
    ForgetClient,
    FreeCounter,
    FreeSlot,
    GrantLease,
    RefuseLease,
    RejectImageObject,
    Reply,
)
from penstock.daemon.conductor.saga import EXCLUSIVE, Refused, Saga
from penstock.daemon.conductor.sagas import credits as credits_of
from penstock.daemon.conductor.sagas import publications, recv_endpoints, send_endpoints
from penstock.daemon.conductor.sagas.linking import announce, unlink, wants_publication, withdraw
from penstock.daemon.conductor.sagas.subscriptions import add_subscription, remove_subscription
from penstock.daemon.conductor.settings import SECOND_NS
from penstock.daemon.conductor.state.machines import ImageState
from penstock.daemon.conductor.state.model import (
    Client,
    Image,
    Publication,
    RecvEndpoint,
    SendEndpoint,
)
from penstock.daemon.conductor.state.registry import erase, note_client, note_log
from penstock.daemon.conductor.state.state import State


@attrs.frozen(kw_only=True)
class LeasePeer:
    """The process that requests a lease, as the kernel identifies it. If the process is a new
    client, the daemon sends the process the secret ``token``."""

    pid: int
    uid: int
    token: bytes
    started: int


def grant_lease(
    state: State, connection_id: int, request: LeaseRequest, peer: LeasePeer
) -> Saga[None]:
    """Grant a lease. A new client gets a new id and slot; a returning client of a dead daemon gets
    its old id and slot."""
    known = _returning(state, request, peer)
    if known is not None:
        _take_back(state, connection_id, known, peer)
        return
    client_id = state.next_id()
    try:
        slot: int = yield AllocateSlot(kind=SlotKind.CLIENT, object_id=client_id)
    except Refused as refused:
        state.emit(
            RefuseLease(connection_id=connection_id, code=refused.code, message=refused.message)
        )
        return
    client = Client(
        id=client_id, slot=slot, name=request.name, pid=peer.pid, uid=peer.uid, token=peer.token,
        started=peer.started, linger_ns=request.linger_ns,
    )
    state.clients[client_id] = client
    note_client(state, client)
    _grant(state, connection_id, client)
    state.event("client_added", client_id=client_id, pid=peer.pid, name=request.name)


def _grant(state: State, connection_id: int, client: Client) -> None:
    state.emit(
        DescribeClient(slot=client.slot, pid=client.pid, uid=client.uid, name=client.name)
    )
    state.emit(
        GrantLease(
            connection_id=connection_id, client_id=client.id, client_slot=client.slot,
            token=client.token,
        )
    )


def _returning(state: State, request: LeaseRequest, peer: LeasePeer) -> Client | None:
    """Return the client whose token the caller knows, if it waits for its process to return.

    A client that lingers may still count as attached: its next process can be faster than the news
    that the connection of the last one has closed.
    """
    client = state.clients.get(request.client_id)
    if client is None or not client.alive or client.uid != peer.uid:
        return None
    if client.attached and not client.linger_ns:
        return None
    same = bool(client.token) and hmac.compare_digest(client.token, request.token)
    return client if same else None


def _take_back(state: State, connection_id: int, client: Client, peer: LeasePeer) -> None:
    client.attached = True
    client.pid, client.started = peer.pid, peer.started
    note_client(state, client)
    _grant(state, connection_id, client)
    state.event("client_returned", client_id=client.id, pid=client.pid, name=client.name)


def await_return(state: State, client: Client) -> None:
    """When a client's process has ended, keep the client's objects for the client's linger time.
    During this time, another process can connect as this client and take over the objects."""
    client.attached = False
    client.lost += 1
    lost = client.lost
    state.emit(ForgetClient(client_id=client.id))
    state.event(
        "client_lingers", client_id=client.id, pid=client.pid, name=client.name,
        linger_ns=client.linger_ns,
    )

    def elapsed() -> None:
        if client.alive and not client.attached and client.lost == lost:
            client.alive = False
            state.runner.start(lose_client(state, client), lambda value, error: None)

    state.timers.at(state.now_ns + client.linger_ns, elapsed)


def lose_client(state: State, client: Client) -> Saga[None]:
    """Remove all objects of a dead client. If the client claimed room in a log without committing a
    message, replace the claim by padding."""
    yield EXCLUSIVE
    for registration_id in list(client.publications):
        publications.detach(state, client, registration_id, died=True)
    for subscription in list(client.subscriptions.values()):
        remove_subscription(state, subscription)
    for counter_id in client.counters.values():
        state.emit(FreeCounter(counter_id=counter_id))
    client.counters.clear()
    state.clients.pop(client.id, None)
    erase(state, "client", client.id)
    state.emit(ForgetClient(client_id=client.id))
    state.event("client_gone", client_id=client.id, pid=client.pid, name=client.name)
    state.timers.at(
        state.now_ns + SECOND_NS,
        lambda: state.emit(FreeSlot(kind=SlotKind.CLIENT, index=client.slot)),
    )


# ---- commands ------------------------------------------------------------------------------------


def enqueue(state: State, client: Client, correlation_id: int, message: Message) -> None:
    """Queue a command; the conductor executes it after the client's earlier commands."""
    if len(client.commands) >= state.settings.max_queued_commands:
        refusal = Failure(
            code="limit",
            message=f"{len(client.commands)} commands of this client wait already: send fewer",
        )
        _reply(state, client, correlation_id, refusal)
        return
    client.commands.append((correlation_id, message))
    _next(state, client)


def _next(state: State, client: Client) -> None:
    if client.busy or not client.alive or not client.commands:
        return
    correlation_id, message = client.commands.popleft()
    client.busy = True
    answered = False

    def answer(reply: Message) -> None:
        nonlocal answered
        answered = True
        _reply(state, client, correlation_id, reply)

    def done(value: Any, error: Refused | None) -> None:
        client.busy = False
        if error is not None and not answered:
            answer(Failure(code=error.code, message=error.message))
        elif value is not None and not answered:
            answer(value)
        _next(state, client)

    state.runner.start(_serve(state, client, message, answer), done)


def _reply(state: State, client: Client, correlation_id: int, message: Message) -> None:
    if client.alive:
        state.emit(Reply(client_id=client.id, correlation_id=correlation_id, message=message))


def _serve(
    state: State, client: Client, message: Message, answer: Callable[[Message], None]
) -> Saga[Message | None]:
    match message:
        case AddPublication():
            return (yield from publications.add_publication(state, client, message))
        case AddSubscription():
            yield from add_subscription(state, client, message, answer)
            return None
        case AddDestination():
            return (yield from _add_destination(state, client, message))
    yield EXCLUSIVE
    match message:
        case RemovePublication():
            _own(client.publications, message.registration_id, "publication")
            publications.detach(state, client, message.registration_id, revoke=message.revoke)
        case RemoveSubscription():
            subscription = _own(client.subscriptions, message.registration_id, "subscription")
            remove_subscription(state, subscription)
        case RemoveDestination():
            yield from _remove_destination(state, client, message)
        case AddCounter():
            return (yield from _add_counter(state, client, message))
        case RemoveCounter():
            counter_id = _own(client.counters, message.registration_id, "counter")
            del client.counters[message.registration_id]
            note_client(state, client)
            state.emit(FreeCounter(counter_id=counter_id))
        case RejectImage():
            yield from _reject_image(state, client, message)
        case WithholdCredits():
            subscription = _own(client.subscriptions, message.registration_id, "subscription")
            yield from credits_of.set_withheld(state, subscription, withheld=message.withheld)
            return Done(
                registration_id=message.registration_id,
                coming={
                    str(image.id): [image.session_id, str(image.source)]
                    for image in credits_of.coming(subscription) if message.withheld
                },
            )
        case Resume():
            _resume(state, client, message, answer)
            return None
        case _:
            raise Refused("malformed", f"{type(message).__name__} is not a request")
    return Done(registration_id=getattr(message, "registration_id", 0))


def _resume(
    state: State, client: Client, message: Resume, answer: Callable[[Message], None]
) -> None:
    """Continue the registrations that the client lists. Remove all others: they were never
    answered, or the client removed them while no daemon ran. The client continues the images that
    have not ended: no notice would follow about the end of an image that lingers."""
    wanted = set(message.registration_ids)
    for registration_id in [r for r in client.publications if r not in wanted]:
        publications.detach(state, client, registration_id)
    for subscription in [s for s in client.subscriptions.values() if s.id not in wanted]:
        remove_subscription(state, subscription)
    for registration_id in [r for r in client.counters if r not in wanted]:
        state.emit(FreeCounter(counter_id=client.counters.pop(registration_id)))
    note_client(state, client)
    adopted = [*client.publications, *client.subscriptions, *client.counters]
    answer(Resumed(registration_ids=adopted))
    for subscription in client.subscriptions.values():
        links = [
            link for link in subscription.links.values()
            if not link.resting and link.source.state is not ImageState.LINGER
        ]
        state.notify(
            client,
            SubscriptionResumed(
                subscription_id=subscription.id,
                correlation_ids=[link.source.id for link in links],
            ),
        )
        for link in links:
            announce(state, link, link.join_position)


def _own(table: dict[int, Any], registration_id: int, what: str) -> Any:
    if registration_id not in table:
        raise Refused(
            "unknown_registration", f"this client has no {what} with id {registration_id}"
        )
    return table[registration_id]


def _endpoint(client: Client, registration_id: int) -> SendEndpoint | RecvEndpoint:
    """Return the endpoint of a publication or subscription of the client."""
    if registration_id in client.publications:
        endpoint: SendEndpoint | RecvEndpoint | None = (
            client.publications[registration_id].endpoint
        )
    else:
        subscription = _own(client.subscriptions, registration_id, "publication or subscription")
        endpoint = subscription.endpoint
    if endpoint is None:
        raise Refused(
            "invalid_channel", "destinations can be added only with control-mode=manual"
        )
    return endpoint


def _add_destination(state: State, client: Client, message: AddDestination) -> Saga[Done]:
    endpoint = _endpoint(client, message.registration_id)
    if isinstance(endpoint, SendEndpoint):
        destination = yield from send_endpoints.add_destination(state, endpoint, message.channel)
    else:
        destination = yield from recv_endpoints.add_destination(state, endpoint, message.channel)
    return Done(registration_id=destination)


def _remove_destination(state: State, client: Client, message: RemoveDestination) -> Saga[None]:
    endpoint = _endpoint(client, message.registration_id)
    wanted = message.destination_id
    for destination in endpoint.destinations.values():
        if destination.id == wanted or (wanted <= 0 and destination.channel == message.channel):
            break
    else:
        raise Refused(
            "unknown_registration",
            f"no destination {wanted if wanted > 0 else message.channel} in {endpoint.channel}",
        )
    if isinstance(endpoint, SendEndpoint):
        yield from send_endpoints.remove_destination(state, endpoint, destination.id)
    elif not endpoint.manual:
        raise Refused("invalid_channel", f"{endpoint.channel} is not control-mode=manual")
    else:
        yield from recv_endpoints.remove_destination(state, endpoint, destination.id)


def _add_counter(state: State, client: Client, message: AddCounter) -> Saga[CounterReady]:
    registration_id = state.next_id()
    counter_id: int = yield AllocateCounter(
        type_id=message.type_id, key=message.key, label=message.label,
        registration_id=registration_id, owner_id=client.id,
    )
    client.counters[registration_id] = counter_id
    note_client(state, client)
    return CounterReady(registration_id=registration_id, counter_id=counter_id)


def _reject_image(state: State, client: Client, message: RejectImage) -> Saga[None]:
    for subscription in client.subscriptions.values():
        link = subscription.links.get(message.correlation_id)
        if link is not None:
            break
    else:
        raise Refused(
            "unknown_registration", f"this client has no image with id {message.correlation_id}"
        )
    source = link.source
    if isinstance(source, Image):
        yield RejectImageObject(image_id=source.id, reason=message.reason)
        source.end_reason, source.rejection = "rejected", message.reason
        note_log(state, source)
    elif source.endpoint is not None:
        raise Refused("not_supported", "a spy cannot reject the publication that it reads")
    else:
        _reject_local(state, source, message.reason)
        # The receiver counts images of the network itself.
        state.emit(AddToSystemCounter(counter_id=SystemCounter.IMAGES_REJECTED))


def _reject_local(state: State, publication: Publication, reason: str) -> None:
    """Reject an IPC stream: notify publishers; subscribers leave, and may join again after the
    liveness time."""
    for registration_id, owner in publication.links.items():
        notice = PublicationError(
            registration_id=registration_id, receiver_id=0, source="aeron:ipc", code=13,
            message=reason,
        )
        state.notify(owner, notice)
    for link in list(publication.subscribers.values()):
        withdraw(state, link, "rejected")
        unlink(state, link)
    state.timers.at(
        state.now_ns + state.settings.image_linger_ns,
        lambda: state.runner.start(_link_again(state, publication), lambda value, error: None),
    )


def _link_again(state: State, publication: Publication) -> Saga[None]:
    yield EXCLUSIVE
    for subscription in state.subscriptions.of_stream(publication.stream_id):
        new = publication.id not in subscription.links
        if new and wants_publication(subscription, publication):
            yield from publications.link_quietly(state, subscription, publication)
