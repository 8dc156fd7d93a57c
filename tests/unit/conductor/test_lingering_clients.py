# SPDX-License-Identifier: Apache-2.0
"""Clients whose objects outlive their process, for another process to go on with."""

from __future__ import annotations

from typing import Any

from conductor_rig import Rig

from penstock.config.protocol import control
from penstock.core.driver_types import EventType, ImageEnd, ObjectKind
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.state.machines import ImageState

UNICAST = "aeron:udp?endpoint=10.0.0.2:40456"
LISTEN = "aeron:udp?endpoint=10.0.0.1:5000"
LINGER_S = 60
LINGER_NS = LINGER_S * 10**9


def relay(rig: Rig) -> tuple[int, Any, Any]:
    """A client that lingers, with a publication and a subscription."""
    client = rig.client("relay", linger_ns=LINGER_NS)
    return client, rig.pub(client, UNICAST, exclusive=True), rig.sub(client, LISTEN)


def returns(rig: Rig, client: int) -> int:
    """Another process states id and token; the id of the client that it is granted."""
    grant = next(g for g in rig.all(a.GrantLease) if g.client_id == client)
    return rig.client("relay", client_id=client, token=grant.token, linger_ns=LINGER_NS)


def events(rig: Rig) -> list[str]:
    return [event.name for event in rig.all(a.PublishEvent)]


def test_another_process_takes_back_what_the_last_one_had() -> None:
    rig = Rig()
    client, publication, subscription = relay(rig)
    rig.setup(rig.state.clients[client].subscriptions[subscription.registration_id].endpoint.id)
    rig.lose(client)
    assert "client_lingers" in events(rig)
    assert not rig.all(a.DrainPublication)
    rig.advance(LINGER_S / 2)
    assert returns(rig, client) == client
    kept = [publication.registration_id, subscription.registration_id]
    resumed = rig.request(client, control.Resume(registration_ids=kept))
    assert sorted(resumed.registration_ids) == sorted(kept)
    assert [n.subscription_id for n in rig.notices(control.ImageAvailable)] == [kept[1]] * 2
    rig.advance(LINGER_S)
    assert client in rig.state.clients


def test_another_process_does_not_hear_of_an_image_that_has_ended() -> None:
    """Its log stays for some time. The daemon has notified the last process about the end."""
    rig = Rig()
    client, _publication, subscription = relay(rig)
    rig.setup(rig.state.clients[client].subscriptions[subscription.registration_id].endpoint.id)
    (image,) = rig.state.images
    rig.event(EventType.IMAGE_INACTIVE, kind=ObjectKind.IMAGE, id=image, reason=ImageEnd.REVOKED)
    assert rig.state.images[image].state is ImageState.LINGER
    rig.lose(client)
    returns(rig, client)
    rig.request(client, control.Resume(registration_ids=[subscription.registration_id]))
    (resumed,) = rig.notices(control.SubscriptionResumed)
    assert resumed.correlation_ids == []
    assert len(rig.notices(control.ImageAvailable)) == 1


def test_a_client_that_does_not_return_ends_with_all_it_had() -> None:
    rig = Rig()
    client, _publication, _subscription = relay(rig)
    rig.lose(client)
    rig.advance(LINGER_S - 1)
    assert client in rig.state.clients
    rig.advance(2)
    assert client not in rig.state.clients
    assert rig.all(a.DrainPublication)
    assert returns(rig, client) != client


def test_each_death_starts_the_time_again() -> None:
    rig = Rig()
    client, _publication, _subscription = relay(rig)
    rig.lose(client)
    rig.advance(LINGER_S / 2)
    returns(rig, client)
    rig.lose(client)
    rig.advance(LINGER_S * 3 / 4)
    assert client in rig.state.clients
    rig.advance(LINGER_S / 2)
    assert client not in rig.state.clients


def test_the_next_process_may_be_faster_than_the_news_of_the_last_ones_end() -> None:
    rig = Rig()
    client, _publication, _subscription = relay(rig)
    assert returns(rig, client) == client


def test_a_client_that_does_not_linger_is_not_taken_over_while_it_lives() -> None:
    rig = Rig()
    client = rig.client()
    grant = rig.last(a.GrantLease)
    assert rig.client(client_id=client, token=grant.token) != client


def test_another_token_is_another_client() -> None:
    rig = Rig()
    client, _publication, _subscription = relay(rig)
    rig.lose(client)
    assert rig.client("relay", client_id=client, token=b"guess", linger_ns=LINGER_NS) != client


def test_a_client_without_objects_does_not_linger() -> None:
    rig = Rig()
    client = rig.client("relay", linger_ns=LINGER_NS)
    rig.lose(client)
    assert client not in rig.state.clients


def test_a_new_daemon_waits_for_a_client_whose_process_has_ended() -> None:
    rig = Rig(journal=True)
    client, _publication, _subscription = relay(rig)
    records = {}
    for record in rig.all(a.Record):
        records[record.kind, record.key] = record.fields
    kept = {key: fields for key, fields in records.items() if fields is not None}
    new = Rig()
    new.counters, new.slots, new.files = rig.counters, rig.slots, rig.files
    new._run(new.conductor.adopt(kept, dead=frozenset({client}), now_ns=0))
    assert client in new.state.clients
    new.advance(LINGER_S - 1)
    assert client in new.state.clients
    new.advance(2)
    assert client not in new.state.clients
