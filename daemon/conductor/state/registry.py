# SPDX-License-Identifier: Apache-2.0
"""Write a journal record of each registration; the next daemon reads the journal after a restart.
At each change of a registration, the conductor writes a record. The conductor writes the record of
an object before it notifies a client of the object. The journal therefore has a record of every
object that a client knows. After a crash, the next daemon can remove an object without a record,
because no client knows it.
"""

from __future__ import annotations

from typing import Any

from penstock.daemon.conductor.actions import Record
from penstock.daemon.conductor.state.machines import ImageState
from penstock.daemon.conductor.state.model import (
    Client,
    Group,
    Image,
    Publication,
    RecvEndpoint,
    Retained,
    SendEndpoint,
    SubscriberLink,
    Subscription,
)
from penstock.daemon.conductor.state.state import State


def _note(state: State, kind: str, key: tuple[int, ...], fields: dict[str, Any] | None) -> None:
    if state.settings.journal:
        state.emit(Record(kind=kind, key=key, fields=fields))


def note_client(state: State, client: Client) -> None:
    fields = {
        "slot": client.slot, "name": client.name, "pid": client.pid, "uid": client.uid,
        "token": client.token, "started": client.started, "counters": dict(client.counters),
        "linger_ns": client.linger_ns,
    }
    _note(state, "client", (client.id,), fields)


def note_send_endpoint(state: State, endpoint: SendEndpoint) -> None:
    if endpoint.id not in state.send_endpoints:
        return
    names = (
        "key", "channel", "tag", "status_counter", "address_counter", "destinations_counter",
        "refused_counter", "local", "peer", "peer_address", "multicast", "manual", "group", "ttl",
        "buffers", "params",
    )
    fields = {name: getattr(endpoint, name) for name in names}
    fields["destinations"] = list(endpoint.destinations.values())
    _note(state, "send_endpoint", (endpoint.id,), fields)


def note_recv_endpoint(state: State, endpoint: RecvEndpoint) -> None:
    if endpoint.id not in state.recv_endpoints:
        return
    names = (
        "key", "channel", "tag", "status_counter", "receiver_id", "multicast", "manual", "buffers",
        "stamps", "params",
    )
    fields = {name: getattr(endpoint, name) for name in names}
    fields["destinations"] = list(endpoint.destinations.values())
    _note(state, "recv_endpoint", (endpoint.id,), fields)


def note_publication(state: State, publication: Publication) -> None:
    plan = publication.plan
    names = (
        "stream_id", "session_id", "initial_term_id", "start_position", "exclusive", "slot",
        "counters", "limit_counter", "log", "params", "end_reason", "end_confirmed",
    )
    fields = {name: getattr(publication, name) for name in names}
    fields |= {
        "channel": plan.channel, "mtu": plan.mtu, "window_bytes": plan.window_bytes,
        "linger_ns": plan.linger_ns, "state": publication.state.value,
        "endpoint_id": 0 if publication.endpoint is None else publication.endpoint.id,
        "links": {key: client.id for key, client in publication.links.items()},
    }
    _note(state, "publication", (publication.id,), fields)


def note_subscription(state: State, subscription: Subscription) -> None:
    fields = {
        "client_id": subscription.client.id, "channel": subscription.plan.channel,
        "stream_id": subscription.stream_id, "spy_key": subscription.spy_key,
        "spy_tag": subscription.spy_tag, "withheld": subscription.withheld,
        "endpoint_id": 0 if subscription.endpoint is None else subscription.endpoint.id,
    }
    _note(state, "subscription", (subscription.id,), fields)


def note_image(state: State, image: Image) -> None:
    names = (
        "stream_id", "session_id", "source", "slot", "counters", "log", "rejoin", "join_position",
        "initial_term_id", "mtu", "params", "sender_flow_control", "sender_group_tag",
        "sender_policy", "sender_depth_bytes", "sender_depth_messages", "sender_credit_weight",
        "sender_priority", "relay_path", "shown", "rejection",
    )
    fields = {name: getattr(image, name) for name in names}
    fields["endpoint_id"] = image.endpoint.id
    _note(state, "image", (image.id,), fields)


def note_log(state: State, owner: Image | Publication) -> None:
    """Record a change of a log's allocated storage."""
    if isinstance(owner, Image):
        if owner.state not in (ImageState.LINGER, ImageState.DONE):     # the log has no record then
            note_image(state, owner)
    else:
        note_publication(state, owner)


def note_link(state: State, link: SubscriberLink) -> None:
    fields = {"counter_id": link.counter_id, "slot": link.slot, "resting": link.resting,
              "join_position": link.join_position, "share": link.credit.share,
              "held": link.credit.held}
    _note(state, "link", (link.subscription.id, link.source.id), fields)


def note_group(state: State, group: Group) -> None:
    names = (
        "slot", "name", "channel", "stream_id", "sessions", "starting", "expiry_ns",
        "allow_unreliable", "owner",
    )
    fields = {name: getattr(group, name) for name in names}
    fields |= {"client_id": group.client.id, "client_slot": group.client.slot}
    _note(state, "group", (group.id,), fields)


def note_retained(state: State, retained: Retained) -> None:
    names = (
        "counter_id", "slot", "stream_id", "session_id", "initial_term_id", "mtu", "window_bytes",
        "log", "join_position", "brief_source", "ended", "end_position", "time_index",
    )
    fields = {name: getattr(retained, name) for name in names}
    _note(state, "retained", (retained.group_id, retained.log_id), fields)


def erase(state: State, kind: str, *key: int) -> None:
    _note(state, kind, key, None)
