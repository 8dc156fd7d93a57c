# SPDX-License-Identifier: Apache-2.0
"""Clients of the conductor: order of their commands, their death, and walks of random commands."""

from __future__ import annotations

from typing import Any

from conductor_rig import Rig
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.protocol import control
from penstock.core.driver_types import EventType, ImageEnd, ObjectKind, SlotKind
from penstock.daemon.conductor import actions as a

NAMED = "aeron:udp?endpoint=host:40456"
UNICAST = "aeron:udp?endpoint=10.0.0.2:40456"


def test_commands_of_one_client_are_answered_in_order() -> None:
    rig = Rig()
    client = rig.client()
    rig.names["host"] = "10.0.0.2"
    rig.hold(a.ResolveName)
    slow = rig.send(client, control.AddPublication(channel=NAMED, stream_id=1))
    fast = rig.send(client, control.AddPublication(channel="aeron:ipc", stream_id=1))
    assert not rig.all(a.Reply)
    rig.resume()
    assert [r.correlation_id for r in rig.all(a.Reply)] == [slow, fast]


def test_a_slow_name_holds_up_its_own_client_only() -> None:
    rig = Rig()
    slow, quick = rig.client(), rig.client()
    rig.hold(a.ResolveName)
    rig.send(slow, control.AddPublication(channel=NAMED, stream_id=1))
    assert isinstance(rig.pub(quick, "aeron:ipc"), control.PublicationReady)


def test_two_clients_that_add_the_same_share_it_whatever_the_timing() -> None:
    rig = Rig()
    first, second = rig.client(), rig.client()
    rig.hold(a.CreateLog)
    message = control.AddPublication(channel=UNICAST, stream_id=1)
    one = rig.send(first, message)
    two = rig.send(second, message)
    rig.resume()
    assert rig.reply(one).original_id == rig.reply(two).original_id
    assert not rig.held


def test_a_dead_client_is_unblocked_and_forgotten() -> None:
    rig = Rig()
    client, other = rig.client(), rig.client()
    slot = rig.state.clients[client].slot
    mine, shared = rig.pub(client, UNICAST, stream=1), rig.pub(client, UNICAST, stream=2)
    rig.pub(other, UNICAST, stream=2)
    rig.sub(client, "aeron:udp?endpoint=10.0.0.1:5000")
    rig.request(client, control.AddCounter(type_id=2000, label="mine"))
    rig.lose(client)
    unblocked = {x.publication_id for x in rig.all(a.UnblockPublication) if x.client_slot == slot}
    assert unblocked == {mine.original_id, shared.original_id}
    assert [x.publication_id for x in rig.all(a.DrainPublication)] == [mine.original_id]
    assert rig.last(a.ForgetClient).client_id == client
    assert client not in rig.state.clients
    rig.advance(2)
    assert (SlotKind.CLIENT, slot) not in rig.slots
    assert not [c for c in rig.counters.values() if c.label == "mine"]


def test_a_client_that_dies_while_its_publication_is_made_gets_none() -> None:
    rig = Rig()
    client = rig.client()
    rig.hold(a.CreateLog)
    rig.send(client, control.AddPublication(channel=UNICAST, stream_id=1))
    rig.lose(client)
    rig.resume()
    assert not rig.all(a.Reply)
    publication = rig.last(a.AddPublicationObject).params.id
    rig.event(EventType.PUB_DRAINED, kind=ObjectKind.PUBLICATION, id=publication)
    rig.advance(6)
    rig.release_all()
    rig.advance(2)
    rig.assert_nothing_left()


def test_a_claim_of_a_dead_client_is_padded_over_when_it_blocks() -> None:
    rig = Rig()
    client, other = rig.client(), rig.client()
    ready = rig.pub(client, UNICAST)
    dead = rig.state.clients[other].slot
    rig.lose(other)
    alive = rig.state.clients[client].slot
    event: dict[str, Any] = {
        "kind": ObjectKind.PUBLICATION, "id": ready.original_id, "position": 64,
    }
    rig.event(EventType.PUB_BLOCKED, client_slot=alive, **event)
    assert not rig.all(a.UnblockPublication)
    rig.event(EventType.PUB_BLOCKED, client_slot=dead, **event)
    assert rig.last(a.UnblockPublication).client_slot == dead


def test_what_belongs_to_another_client_cannot_be_touched() -> None:
    rig = Rig()
    client, other = rig.client(), rig.client()
    ready = rig.pub(client, UNICAST)
    for message in (
        control.RemovePublication(registration_id=ready.registration_id),
        control.RemoveSubscription(registration_id=ready.registration_id),
        control.RemoveCounter(registration_id=ready.registration_id),
        control.AddDestination(registration_id=ready.registration_id, channel=UNICAST),
        control.RemoveDestination(registration_id=ready.registration_id, channel=UNICAST),
    ):
        assert rig.request(other, message).code == "unknown_registration"


def test_what_is_no_request_is_malformed() -> None:
    rig = Rig()
    assert rig.request(rig.client(), control.Done()).code == "malformed"


def test_a_client_cannot_queue_without_bound() -> None:
    rig = Rig(max_queued_commands=3)
    client = rig.client()
    rig.hold(a.ResolveName)
    message = control.AddPublication(channel=NAMED, stream_id=1)
    correlations = [rig.send(client, message) for _ in range(5)]
    assert rig.reply(correlations[-1]).code == "limit"
    assert len(rig.all(a.Reply)) == 1


def test_no_slot_left_refuses_the_lease() -> None:
    rig = Rig()
    rig.fail(a.AllocateSlot, "limit", "all taken")
    request = control.LeaseRequest(name="c")
    rig._run(rig.conductor.on_lease(5, request, pid=1, uid=2, now_ns=0))
    refusal = rig.last(a.RefuseLease)
    assert (refusal.connection_id, refusal.code) == (5, "limit")
    assert not rig.all(a.GrantLease)


CHANNELS = (
    UNICAST, "aeron:ipc?term-length=64k", "aeron:udp?endpoint=10.0.0.1:5000|term-length=64k",
    "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.1",
    "aeron:udp?control=10.0.0.1:6000|control-mode=dynamic",
    "aeron-spy:aeron:udp?endpoint=10.0.0.2:40456",
)
FAILURES = (a.AllocateCounter, a.AllocateSlot, a.CreateLog, a.AddPublicationObject,
            a.AddImageObject, a.AddImageSubscriber, a.AddPublicationSubscriber,
            a.OpenRecvEndpoint, a.AddRecvDestination, a.OpenSendEndpoint, a.AddInterest)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pub", "exclusive", "sub", "remove", "setup", "end", "drain", "release",
                         "lose", "fail", "wait"]),
        st.integers(min_value=0, max_value=99),
    ),
    max_size=60,
)


class Walk:
    """Applies random steps, then ends everything."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.clients = [self.rig.client() for _ in range(3)]

    def step(self, what: str, number: int) -> None:
        rig, world = self.rig, self.rig.state
        client = self.clients[number % 3]
        channel = CHANNELS[number % len(CHANNELS)]
        match what:
            case "pub" | "exclusive":
                rig.send(client, control.AddPublication(
                    channel=channel, stream_id=number % 2, exclusive=what == "exclusive"))
            case "sub":
                rig.send(client, control.AddSubscription(channel=channel, stream_id=number % 2))
            case "remove":
                self.remove(client, number)
            case "setup":
                for endpoint in list(world.recv_endpoints):
                    rig.setup(endpoint, stream_id=number % 2, session_id=number % 4,
                              term_length=65536)
            case "lose":
                rig.lose(client)
            case "fail":
                rig.fail(FAILURES[number % len(FAILURES)], "storage", "full")
            case "wait":
                rig.advance(number / 10)
            case "release":
                rig.release_all()
            case _:
                self.end_objects(what, number)

    def remove(self, client: int, number: int) -> None:
        known = self.rig.state.clients.get(client)
        if known is None:
            return
        publications, subscriptions = list(known.publications), list(known.subscriptions)
        if publications and number % 2:
            self.rig.send(client, control.RemovePublication(
                registration_id=publications[number % len(publications)], revoke=number % 3 == 0))
        elif subscriptions:
            self.rig.send(client, control.RemoveSubscription(
                registration_id=subscriptions[number % len(subscriptions)]))

    def end_objects(self, what: str, number: int) -> None:
        """The data plane reports ends: of all images, and of publications that drain."""
        rig, world = self.rig, self.rig.state
        for image in list(world.images):
            if what == "end":
                rig.event(EventType.IMAGE_INACTIVE, kind=ObjectKind.IMAGE, id=image,
                          reason=list(ImageEnd)[number % len(ImageEnd)])
            else:
                rig.event(EventType.IMAGE_DRAINED, kind=ObjectKind.IMAGE, id=image)
        for publication in list(world.publications.values()):
            if publication.state.value == "draining":
                rig.event(EventType.PUB_DRAINED, kind=ObjectKind.PUBLICATION, id=publication.id)

    def finish(self) -> None:
        for client in self.clients:
            self.rig.lose(client)
        for _ in range(4):
            self.end_objects("end", 0)
            self.end_objects("drain", 0)
            self.rig.release_all()
            self.rig.advance(30)


@given(STEPS)
def test_whatever_happens_each_command_is_answered_once_and_nothing_is_left(
    steps: list[tuple[str, int]],
) -> None:
    walk = Walk()
    for what, number in steps:
        walk.step(what, number)
    walk.finish()
    correlations = [reply.correlation_id for reply in walk.rig.all(a.Reply)]
    assert len(correlations) == len(set(correlations))
    walk.rig.assert_nothing_left()
