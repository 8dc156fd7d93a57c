# SPDX-License-Identifier: Apache-2.0
"""Life of publications, by the conductor alone."""

from __future__ import annotations

import pytest
from conductor_rig import MIB, Rig

from penstock.config.protocol import control
from penstock.core.driver_types import ALL_TERMS, Address, EventType, FlowControl, Mdc, ObjectKind
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.state.state import first_terms

UNICAST = "aeron:udp?endpoint=10.0.0.2:40456"


def remove(rig: Rig, client: int, registration: int, **options: bool) -> object:
    message = control.RemovePublication(registration_id=registration, **options)
    return rig.request(client, message)


def test_a_publication_gets_storage_counters_and_an_endpoint() -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.pub(client, UNICAST)
    assert ready.log_path in rig.files
    assert ready.max_message_bytes == 2 * MIB
    assert rig.counters[ready.limit_counter_id].type_id == 1
    opened = rig.last(a.OpenSendEndpoint).params
    assert opened.data.connect == Address(ip="10.0.0.2", port=40456)
    params = rig.last(a.AddPublicationObject).params
    assert params.flow_control is FlowControl.UNICAST
    assert params.window_bytes == 8 * MIB
    assert params.reserved_position == 16 * MIB
    assert rig.last(a.CreateLog).params.reserve_terms == 1
    assert rig.state.storage.used_bytes == 16 * MIB + 4096


@pytest.mark.parametrize(
    ("term_length", "position", "terms"),
    [
        (16 * MIB, 0, 1),
        (16 * MIB, 8 * MIB, 1),
        (16 * MIB, 8 * MIB + 32, 2),            # soon needed
        (16 * MIB, 5 * 16 * MIB + 9 * MIB, 2),
        (16 * MIB, 16 * MIB, 1),
        (MIB, 0, 2),                            # cheap
        (64 * 1024, 32, 2),
        (2 * MIB, 0, 1),
    ],
)
def test_a_log_begins_with_what_it_needs_first(
    term_length: int, position: int, terms: int
) -> None:
    assert first_terms(term_length, position) == terms


def test_the_same_channel_and_stream_is_shared() -> None:
    rig = Rig()
    first = rig.pub(rig.client(), UNICAST)
    second = rig.pub(rig.client(), UNICAST)
    assert second.original_id == first.original_id == first.registration_id
    assert second.registration_id != first.registration_id
    assert second.log_path == first.log_path
    assert len(rig.all(a.OpenSendEndpoint)) == 1


@pytest.mark.parametrize(
    ("parameter", "named"),
    [("mtu=4096", "mtu"), ("term-length=64k", "term-length"), ("session-id=5", "session-id"),
     ("ssc=true", "ssc"), ("linger=1s", "linger"), ("eos=false", "eos")],
)
def test_a_contradiction_to_the_shared_one_is_named(parameter: str, named: str) -> None:
    rig = Rig()
    client = rig.client()
    rig.pub(client, UNICAST)
    refusal = rig.pub(client, f"{UNICAST}|{parameter}")
    assert isinstance(refusal, control.Failure)
    assert refusal.code == "invalid_channel"
    assert f"{named}=" in refusal.message


def test_exclusive_publications_are_their_own() -> None:
    rig = Rig()
    client = rig.client()
    first = rig.pub(client, UNICAST, exclusive=True)
    second = rig.pub(client, UNICAST, exclusive=True)
    assert first.original_id != second.original_id
    assert second.session_id == first.session_id + 1
    assert len(rig.all(a.OpenSendEndpoint)) == 1


def test_session_ids_skip_the_reserved_and_the_used() -> None:
    rig = Rig()
    client = rig.client()
    rig.state.next_session = -2
    rig.pub(client, f"{UNICAST}|session-id=1001", exclusive=True)
    sessions = [rig.pub(client, UNICAST, exclusive=True).session_id for _ in range(3)]
    assert sessions == [-2, 1002, 1003]


def test_a_session_id_in_use_is_refused_even_while_it_lingers() -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.pub(client, f"{UNICAST}|session-id=5000", exclusive=True)
    remove(rig, client, ready.registration_id)
    rig.event(EventType.PUB_DRAINED, kind=ObjectKind.PUBLICATION, id=ready.original_id)
    refusal = rig.pub(client, f"{UNICAST}|session-id=5000")
    assert isinstance(refusal, control.Failure)
    assert "5000" in refusal.message


def test_the_last_client_drains_lingers_and_leaves_nothing() -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.pub(client, UNICAST)
    assert isinstance(remove(rig, client, ready.registration_id), control.Done)
    assert rig.last(a.DrainPublication).publication_id == ready.original_id
    rig.event(EventType.PUB_DRAINED, kind=ObjectKind.PUBLICATION, id=ready.original_id)
    rig.advance(4.9)
    assert not rig.all(a.RemoveObject)
    rig.advance(0.2)
    rig.release_all()
    rig.lose(client)
    rig.advance(2)
    rig.assert_nothing_left()


def test_an_end_that_the_receiver_confirmed_does_not_linger() -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.pub(client, UNICAST)
    remove(rig, client, ready.registration_id)
    event = {"kind": ObjectKind.PUBLICATION, "id": ready.original_id}
    rig.event(EventType.PUB_EOS_ACK, **event)
    assert not rig.all(a.RemoveObject)
    rig.event(EventType.PUB_DRAINED, **event)
    assert rig.last(a.RemoveObject).object_id == ready.original_id


def test_a_revoked_publication_is_not_drained() -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.pub(client, UNICAST, exclusive=True)
    remove(rig, client, ready.registration_id, revoke=True)
    assert rig.last(a.RevokePublication).publication_id == ready.original_id
    assert not rig.all(a.DrainPublication)


def test_a_publication_added_while_one_drains_is_new() -> None:
    rig = Rig()
    client = rig.client()
    first = rig.pub(client, UNICAST)
    remove(rig, client, first.registration_id)
    second = rig.pub(client, UNICAST)
    assert second.original_id != first.original_id
    assert second.session_id != first.session_id


def test_an_address_that_is_being_closed_is_waited_for() -> None:
    rig = Rig()
    client = rig.client()
    channel = "aeron:udp?control=10.0.0.1:5000|control-mode=dynamic|linger=0s"
    ready = rig.pub(client, channel)
    remove(rig, client, ready.registration_id)
    rig.event(EventType.PUB_DRAINED, kind=ObjectKind.PUBLICATION, id=ready.original_id)
    rig.advance(0.1)
    rig.release(ObjectKind.PUBLICATION, ready.original_id)
    endpoint = rig.last(a.RemoveObject)
    assert endpoint.kind is ObjectKind.SEND_ENDPOINT
    correlation = rig.send(client, control.AddPublication(channel=channel, stream_id=7))
    assert len(rig.all(a.OpenSendEndpoint)) == 1
    rig.release(ObjectKind.SEND_ENDPOINT, endpoint.object_id)
    assert isinstance(rig.reply(correlation), control.PublicationReady)


def test_what_does_not_fit_into_the_budget_is_refused_with_the_numbers() -> None:
    rig = Rig(storage_budget_bytes=24 * MIB)
    client = rig.client()
    rig.pub(client, UNICAST)
    refusal = rig.pub(client, UNICAST, stream=8)
    assert refusal.code == "storage"
    assert str(16 * MIB + 4096) in refusal.message
    assert str(8 * MIB - 4096) in refusal.message


@pytest.mark.parametrize(
    "step",
    [a.AllocateCounter, a.AllocateSlot, a.CreateLog, a.OpenSendEndpoint, a.AddPublicationObject,
     a.AddPublicationClient],
)
def test_a_step_that_fails_leaves_nothing(step: type[a.Action]) -> None:
    rig = Rig()
    client = rig.client()
    rig.fail(step, "storage", "full")
    assert rig.pub(client, UNICAST) == control.Failure(code="storage", message="full")
    rig.release_all()
    rig.lose(client)
    rig.advance(20)
    rig.assert_nothing_left()


def test_a_multicast_publication_listens_beside_its_group() -> None:
    rig = Rig()
    channel = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24|ttl=4"
    rig.pub(rig.client(), channel)
    params = rig.last(a.OpenSendEndpoint).params
    assert params.multicast
    assert params.data.connect == Address(ip="239.20.0.1", port=40456)
    assert params.data.multicast_ttl == 4
    assert params.control is not None
    assert params.control.group == Address(ip="239.20.0.2", port=40456)
    assert params.control.interface_addr == Address(ip="10.0.0.1", port=0)
    assert rig.last(a.AddPublicationObject).params.flow_control is FlowControl.MAX


def test_manual_destinations_come_and_go() -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.pub(client, "aeron:udp?control-mode=manual")
    assert rig.last(a.OpenSendEndpoint).params.mdc is Mdc.MANUAL
    channel = "aeron:udp?endpoint=10.0.0.3:5001"
    added = rig.request(
        client, control.AddDestination(registration_id=ready.registration_id, channel=channel)
    )
    assert rig.last(a.AddSendDestination).address == Address(ip="10.0.0.3", port=5001)
    removal = control.RemoveDestination(
        registration_id=ready.registration_id, destination_id=added.registration_id
    )
    assert isinstance(rig.request(client, removal), control.Done)
    assert rig.last(a.RemoveSendDestination).destination_id == added.registration_id
    assert rig.request(client, removal).code == "unknown_registration"


def test_a_silent_peer_is_looked_up_again_at_most_once_a_second() -> None:
    rig = Rig()
    rig.names["host"] = "10.0.0.2"
    rig.pub(rig.client(), "aeron:udp?endpoint=host:40456")
    endpoint = rig.last(a.OpenSendEndpoint).params.id
    rig.names["host"] = "10.0.0.3"
    for _ in range(3):
        rig.event(EventType.SILENT, kind=ObjectKind.SEND_ENDPOINT, id=endpoint)
    assert [x.address.ip for x in rig.all(a.SetSendAddress)] == ["10.0.0.3"]
    assert len(rig.all(a.ResolveName)) == 2


def test_terms_are_reserved_one_by_one_when_they_are_needed() -> None:
    rig = Rig()
    ready = rig.pub(rig.client(), UNICAST)
    for terms, notified in ((2, 32 * MIB), (3, ALL_TERMS)):
        end = (terms - 1) * 16 * MIB
        rig.event(
            EventType.TERM_NEEDED, kind=ObjectKind.PUBLICATION, id=ready.original_id, reserved=end
        )
        assert rig.last(a.ReserveTerm).position == end
        assert rig.last(a.PublicationReserved).position == notified
        assert rig.state.storage.used_bytes == terms * 16 * MIB + 4096


def test_a_term_without_room_is_requested_until_there_is() -> None:
    rig = Rig()
    ready = rig.pub(rig.client(), UNICAST)
    rig.fail(a.ReserveTerm, "storage", "full")
    rig.event(EventType.TERM_NEEDED, kind=ObjectKind.PUBLICATION, id=ready.original_id)
    assert not rig.all(a.PublicationReserved)
    rig.advance(0.2)
    assert rig.last(a.PublicationReserved).position == 32 * MIB


def test_a_rejection_is_told_to_every_publisher() -> None:
    rig = Rig()
    first, second = rig.client(), rig.client()
    one, two = rig.pub(first, UNICAST), rig.pub(second, UNICAST)
    rig.event(
        EventType.REMOTE_ERROR, kind=ObjectKind.PUBLICATION, id=one.original_id, code=13,
        receiver_id=99, text="no thanks", source=Address(ip="10.0.0.2", port=40456),
    )
    notified = rig.notices(control.PublicationError)
    assert {n.registration_id for n in notified} == {one.registration_id, two.registration_id}
    assert {n.message for n in notified} == {"no thanks"}


@pytest.mark.parametrize(
    ("channel", "code"),
    [
        ("aeron:udp?endpoint=nowhere:1000", "unknown_host"),
        ("aeron:udp?endpoint=239.20.0.1:4000|interface=192.168.7.0/24", "no_interface"),
        ("aeron:udp?tags=9", "invalid_channel"),
        ("aeron:udp?endpoint=10.0.0.2:1|ats=true", "invalid_channel"),
        ("aeron:udp?control-mode=response|control=10.0.0.1:1", "invalid_channel"),
        ("aeron:udp?endpoint=239.20.0.1:4001|fc=fastest", "not_supported"),
        ("aeron:udp?endpoint=10.0.0.2:1|session-id=tag:3", "invalid_channel"),
        ("aeron:udp?endpoint=10.0.0.2:1|mtu=8192|so-sndbuf=4096", "socket_buffer"),
    ],
)
def test_refusals_have_their_code(channel: str, code: str) -> None:
    rig = Rig()
    client = rig.client()
    refusal = rig.pub(client, channel)
    assert isinstance(refusal, control.Failure)
    assert refusal.code == code
    rig.lose(client)
    rig.advance(2)
    rig.assert_nothing_left()


@pytest.mark.parametrize(("channel", "window"), [
    ("aeron:ipc", 64 * 1024), ("aeron:udp?endpoint=10.0.0.2:40456", 32 * 1024),
])
def test_the_session_of_a_tag_leaves_the_window_of_its_medium(channel: str, window: int) -> None:
    rig = Rig()
    client = rig.client()
    joint = "|" if "?" in channel else "?"
    first = rig.pub(client, f"{channel}{joint}term-length=64k|tags=9,5")
    assert rig.last(a.AddPublicationObject).params.window_bytes == window
    other = f"{channel}{joint}session-id=tag:5"
    second = rig.request(client, control.AddPublication(channel=other, stream_id=8))
    assert second.session_id == first.session_id
    assert rig.last(a.AddPublicationObject).params.window_bytes == window
