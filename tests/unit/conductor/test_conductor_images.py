# SPDX-License-Identifier: Apache-2.0
"""Life of subscriptions and images, by the conductor alone."""

from __future__ import annotations

from typing import Any

import pytest
from conductor_rig import MIB, SOURCE, Rig

from penstock.config.protocol import control
from penstock.core.driver_types import (
    ALL_TERMS,
    Address,
    EventType,
    ImageEnd,
    ObjectKind,
    TetherState,
)
from penstock.daemon.conductor import actions as a

PAGE = 4096
UNICAST = "aeron:udp?endpoint=10.0.0.1:40456"
IMAGE = ObjectKind.IMAGE


def endpoint_id(rig: Rig) -> int:
    return rig.last(a.OpenRecvEndpoint).params.id


def image_id(rig: Rig) -> int:
    return rig.last(a.AddImageObject).params.id


def with_image(channel: str = UNICAST, **settings: Any) -> tuple[Rig, int, Any]:
    """A rig, a client, and its subscription with one image."""
    rig = Rig(**settings)
    client = rig.client()
    ready = rig.sub(client, channel)
    rig.setup(endpoint_id(rig))
    return rig, client, ready


def end(rig: Rig, reason: ImageEnd = ImageEnd.END_OF_STREAM) -> int:
    """The image goes inactive and is drained; its id."""
    image = image_id(rig)
    rig.event(EventType.IMAGE_INACTIVE, kind=IMAGE, id=image, reason=reason)
    rig.event(EventType.IMAGE_DRAINED, kind=IMAGE, id=image)
    return image


def test_a_subscription_opens_a_socket_and_tells_where() -> None:
    rig = Rig()
    ready = rig.sub(rig.client(), "aeron:udp?endpoint=10.0.0.1:0")
    assert ready.local_addresses == ["10.0.0.1:44444"]
    assert rig.all(a.AddInterest)[0].session_id is None
    assert rig.counters[ready.channel_status_id].type_id == 7


def test_a_setup_makes_an_image_and_says_so() -> None:
    rig, _client, ready = with_image()
    (notice,) = rig.notices(control.ImageAvailable)
    assert notice.subscription_id == ready.registration_id
    assert notice.correlation_id == image_id(rig)
    assert notice.source_identity == str(SOURCE)
    assert notice.log_path in rig.files
    params = rig.last(a.AddImageObject).params
    assert params.window_bytes == 128 * 1024
    assert params.reserved_position == 128 * 1024 + PAGE - 32
    assert rig.counters[notice.position_counter_id].reference_id == image_id(rig)


def test_the_reply_comes_before_the_images_that_are_there() -> None:
    rig, client, _ready = with_image()
    rig.done.clear()
    rig.sub(client, UNICAST)
    kinds = [type(x) for x in rig.done if isinstance(x, a.Reply | a.Notify)]
    assert kinds == [a.Reply, a.Notify]
    assert rig.notices(control.ImageAvailable)[0].join_position == 2048
    assert not rig.all(a.OpenRecvEndpoint)


def test_a_session_filter_takes_one_session_only() -> None:
    rig = Rig()
    rig.sub(rig.client(), f"{UNICAST}|session-id=42")
    assert rig.last(a.AddInterest).session_id == 42
    rig.setup(endpoint_id(rig), session_id=43)
    assert not rig.all(a.AddImageObject)
    rig.setup(endpoint_id(rig), session_id=42)
    assert rig.notices(control.ImageAvailable)[0].session_id == 42


@pytest.mark.parametrize(
    "fields",
    [{"term_length": MIB + 1}, {"term_length": 1024}, {"mtu": 33}, {"mtu": 2**31 - 1},
     {"term_offset": -32}, {"term_offset": MIB}, {"active_term_id": 2},
     {"active_term_id": -(2**31) + 3, "initial_term_id": 3}],
)
def test_a_hostile_setup_costs_a_line_in_the_error_log(fields: dict[str, Any]) -> None:
    rig = Rig()
    rig.sub(rig.client(), UNICAST)
    rig.setup(endpoint_id(rig), **fields)
    assert not rig.all(a.CreateLog)
    assert rig.all(a.LogError)
    refused = rig.last(a.RefuseSession)
    assert (refused.session_id, refused.source) == (42, SOURCE)
    assert "SETUP states" in refused.reason


def test_a_setup_without_a_source_is_forgotten() -> None:
    rig = Rig()
    rig.sub(rig.client(), UNICAST)
    rig.setup(endpoint_id(rig), source=None)
    assert rig.last(a.ForgetSession).session_id == 42
    assert not rig.all(a.CreateLog)


@pytest.mark.parametrize(
    ("channel", "term", "mtu", "taken"),
    [("rcv-wnd=4k", MIB, 4096, True), ("rcv-wnd=4k", MIB, 4128, False),
     ("rcv-wnd=64k", MIB, 65504, True), ("rcv-wnd=128k", 64 * 1024, 32768, True),
     ("rcv-wnd=128k", 64 * 1024, 32800, False)],
)
def test_an_mtu_above_the_window_is_refused(
    channel: str, term: int, mtu: int, *, taken: bool
) -> None:
    rig = Rig()
    rig.sub(rig.client(), f"{UNICAST}|{channel}")
    rig.setup(endpoint_id(rig), term_length=term, mtu=mtu)
    assert bool(rig.all(a.AddImageObject)) is taken
    assert bool(rig.all(a.RefuseSession)) is not taken
    if not taken:
        assert "receiver window" in rig.last(a.RefuseSession).reason
        assert "receiver window" in rig.last(a.LogError).text
        rig.setup(endpoint_id(rig), term_length=term, mtu=1408)  # the publication was corrected
        assert rig.all(a.AddImageObject)


@pytest.mark.parametrize("step", [a.AllocateSlot, a.AllocateCounter, a.CreateLog,
                                  a.AddImageObject, a.AddImageSubscriber])
def test_an_image_that_fails_is_tried_again(step: type[a.Action]) -> None:
    rig = Rig()
    client = rig.client()
    rig.sub(client, UNICAST)
    rig.fail(step, "storage", "full")
    rig.setup(endpoint_id(rig))
    assert not rig.notices(control.ImageAvailable)
    if step is a.AddImageSubscriber:
        end(rig, ImageEnd.NO_SUBSCRIBER)
        rig.release_all()
    rig.setup(endpoint_id(rig))
    assert len(rig.notices(control.ImageAvailable)) == 1
    rig.lose(client)
    end(rig)
    rig.release_all()
    rig.release_all()
    rig.advance(20)
    rig.assert_nothing_left()


def test_a_second_source_is_named_in_one_log_line() -> None:
    rig, _client, _ready = with_image()
    stranger = Address(ip="10.0.0.9", port=666)
    rig.event(
        EventType.SECOND_SOURCE, kind=ObjectKind.IMAGE, id=image_id(rig), datagrams=1,
        source=stranger,
    )
    (line,) = rig.all(a.LogError)
    assert "10.0.0.9:666" in line.text
    assert "session 42" in line.text
    (event,) = [x for x in rig.all(a.PublishEvent) if x.name == "second_source"]
    assert event.fields["address"] == "10.0.0.9:666"
    rig.event(
        EventType.SECOND_SOURCE, kind=ObjectKind.IMAGE, id=12345, datagrams=1, source=stranger
    )


def test_an_image_that_ended_stays_readable_for_the_linger_time() -> None:
    rig, client, _ready = with_image()
    image = end(rig)
    (notice,) = rig.notices(control.ImageUnavailable)
    assert notice.reason == "end_of_stream"
    assert rig.last(a.RemoveObject) == a.RemoveObject(kind=IMAGE, object_id=image)
    rig.release(IMAGE, image)
    rig.advance(9.9)
    assert len(rig.files) == 1
    rig.advance(0.2)
    assert not rig.files
    rig.lose(client)
    rig.release_all()
    rig.advance(11)
    rig.assert_nothing_left()


def test_a_session_may_come_back_under_the_same_number() -> None:
    rig, _client, _ready = with_image()
    first = end(rig, ImageEnd.TIMEOUT)
    rig.setup(endpoint_id(rig))
    assert image_id(rig) != first
    assert len(rig.notices(control.ImageAvailable)) == 2


@pytest.mark.parametrize(("reason", "keep"), [(ImageEnd.TIMEOUT, True),
                                              (ImageEnd.END_OF_STREAM, False)])
def test_without_rejoin_a_lost_session_is_ignored(reason: ImageEnd, keep: bool) -> None:
    rig, _client, _ready = with_image(f"{UNICAST}|rejoin=false")
    end(rig, reason)
    assert rig.last(a.RemoveObject).keep_session is keep


def test_the_last_subscriber_ends_the_image() -> None:
    rig, client, ready = with_image()
    removal = control.RemoveSubscription(registration_id=ready.registration_id)
    assert isinstance(rig.request(client, removal), control.Done)
    assert rig.last(a.DrainImage).image_id == image_id(rig)
    assert rig.all(a.RemoveInterest)
    assert not [x for x in rig.all(a.RemoveObject) if x.kind is ObjectKind.RECV_ENDPOINT]
    rig.event(EventType.IMAGE_DRAINED, kind=IMAGE, id=image_id(rig))
    rig.release_all()
    rig.release_all()
    rig.lose(client)
    rig.advance(2)
    rig.assert_nothing_left()


@pytest.mark.parametrize("reason", list(ImageEnd))
def test_a_removed_image_gets_no_command(reason: ImageEnd) -> None:
    """The receiver frees it after the removal. An outrun image is done at once, without linger."""
    rig, client, ready = with_image()
    image = end(rig, reason)
    removal = control.RemoveSubscription(registration_id=ready.registration_id)
    assert isinstance(rig.request(client, removal), control.Done)
    removed = rig.done.index(next(x for x in rig.all(a.RemoveObject) if x.object_id == image))
    assert [x for x in rig.done[removed + 1:] if getattr(x, "image_id", None) == image] == []


def test_a_term_of_an_image_is_reserved_when_needed() -> None:
    rig, _client, _ready = with_image()
    have = 128 * 1024 + PAGE
    for wanted, end in ((200_000, 200_704), (0, MIB), (0, 2 * MIB), (0, 3 * MIB)):
        rig.event(
            EventType.TERM_NEEDED, kind=IMAGE, id=image_id(rig), reserved=have - 32, wanted=wanted
        )
        assert (rig.last(a.ReserveTerm).position, rig.last(a.ReserveTerm).end) == (have, end)
        notified = ALL_TERMS if end == 3 * MIB else end if end % MIB == 0 else end - 32
        assert rig.last(a.ImageReserved).position == notified
        have = end


@pytest.mark.parametrize("term_length", [64 * 1024, MIB, 16 * MIB, 1024 * MIB])
@pytest.mark.parametrize("window", ["64k", "128k", "8m"])
@pytest.mark.parametrize("offset", [0, 32, 65536 - 64, 65536 - 32])
def test_a_setup_takes_a_window_of_storage_at_most(
    term_length: int, window: str, offset: int
) -> None:
    rig = Rig(storage_budget_bytes=4096 * MIB)
    rig.sub(rig.client(), f"{UNICAST}|rcv-wnd={window}")
    rig.setup(endpoint_id(rig), established=False, term_length=term_length, term_offset=offset)
    taken = rig.state.storage.used_bytes
    assert taken <= 256 * 1024 + 6 * PAGE
    made = rig.last(a.CreateLog).params
    assert made.reserve_to - made.reserve_from <= 256 * 1024 + 2 * PAGE
    log = next(iter(rig.state.images.values())).log
    image = image_id(rig)
    for _ in range(10):                     # it comes to have all of it, each byte accounted once
        if log.is_whole:
            break
        rig.event(EventType.TERM_NEEDED, kind=IMAGE, id=image, reserved=log.notified_position)
    ranges = [(r.position, r.end) for r in rig.all(a.ReserveTerm)]
    assert log.is_whole
    assert sum(end - start for start, end in ranges) == \
        3 * term_length - (made.reserve_to - made.reserve_from)
    assert rig.state.storage.used_bytes == log.reserved_bytes
    rig.event(EventType.IMAGE_INACTIVE, kind=IMAGE, id=image, reason=ImageEnd.EVICTED)
    rig.release_all()
    assert rig.state.storage.used_bytes == 0


def test_subscribers_see_a_stream_with_its_first_frame() -> None:
    rig = Rig()
    rig.sub(rig.client(), UNICAST)
    rig.setup(endpoint_id(rig), established=False)
    late = rig.sub(rig.client(), UNICAST)
    assert not rig.notices(control.ImageAvailable)
    rig.event(EventType.IMAGE_ESTABLISHED, kind=IMAGE, id=image_id(rig))
    first, second = rig.notices(control.ImageAvailable)
    assert first.join_position == second.join_position == 0
    assert late.registration_id in (first.subscription_id, second.subscription_id)


@pytest.mark.parametrize("reason", [ImageEnd.EVICTED, ImageEnd.TIMEOUT])
def test_a_session_without_a_frame_leaves_nothing(reason: ImageEnd) -> None:
    rig = Rig()
    client = rig.client()
    rig.sub(client, UNICAST)
    rig.setup(endpoint_id(rig), established=False)
    rig.event(EventType.IMAGE_INACTIVE, kind=IMAGE, id=image_id(rig), reason=reason)
    assert not rig.notices(control.ImageUnavailable)
    rig.release_all()
    assert not rig.files                    # at once, not after the linger time
    rig.lose(client)
    rig.release_all()
    rig.advance(2)
    rig.assert_nothing_left()


def test_a_session_without_a_frame_goes_with_its_last_subscription() -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.sub(client, UNICAST)
    rig.setup(endpoint_id(rig), established=False)
    rig.request(client, control.RemoveSubscription(registration_id=ready.registration_id))
    rig.release_all()
    rig.lose(client)
    rig.advance(2)
    rig.assert_nothing_left()


def test_a_setup_beside_an_image_that_ends_counts_again() -> None:
    """The receiver has erased the session, its image is not gone yet: it must not wait for ever."""
    rig, _client, _ready = with_image()
    rig.event(EventType.IMAGE_INACTIVE, kind=IMAGE, id=image_id(rig), reason=ImageEnd.TIMEOUT)
    rig.setup(endpoint_id(rig))
    assert rig.last(a.ForgetSession) == a.ForgetSession(
        endpoint_id=endpoint_id(rig), stream_id=7, session_id=42, keep=False
    )


def test_a_revoked_stream_goes_at_once() -> None:
    rig, _client, _ready = with_image()
    rig.event(EventType.IMAGE_INACTIVE, kind=IMAGE, id=image_id(rig), reason=ImageEnd.REVOKED)
    assert rig.notices(control.ImageUnavailable)[0].reason == "revoked"
    assert not rig.all(a.DrainImage)


def test_an_untethered_subscriber_leaves_and_returns() -> None:
    rig, _client, _ready = with_image(f"{UNICAST}|tether=false")
    (first,) = rig.notices(control.ImageAvailable)
    event = {"kind": IMAGE, "id": image_id(rig), "position_counter_id": first.position_counter_id}
    rig.event(EventType.SUBSCRIBER, state=TetherState.LINGER, **event)
    assert rig.notices(control.ImageUnavailable)[0].reason == "lagged"
    rig.event(EventType.SUBSCRIBER, state=TetherState.ACTIVE, **event)
    again = rig.notices(control.ImageAvailable)[1]
    assert again.correlation_id == first.correlation_id
    assert again.position_counter_id == first.position_counter_id


def test_multicast_joins_on_the_chosen_interface() -> None:
    rig = Rig()
    rig.sub(rig.client(), "aeron:udp?endpoint=239.20.0.1:40456|interface={eth1}")
    params = rig.last(a.AddRecvDestination).params
    assert params.socket.group == Address(ip="239.20.0.1", port=40456)
    assert params.socket.interface_addr == Address(ip="10.0.1.1", port=0)
    assert params.group_control == Address(ip="239.20.0.2", port=40456)
    assert params.socket.reuse


def test_a_manual_subscription_opens_a_socket_per_destination() -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.sub(client, "aeron:udp?control-mode=manual")
    assert ready.local_addresses == []
    for port in (5001, 5002):
        channel = f"aeron:udp?endpoint=10.0.0.1:{port}"
        added = rig.request(
            client, control.AddDestination(registration_id=ready.registration_id, channel=channel)
        )
        assert isinstance(added, control.Done)
    ports = [x.params.socket.bind.port for x in rig.all(a.AddRecvDestination)]
    assert ports == [5001, 5002]
    refusal = rig.request(
        client,
        control.AddDestination(registration_id=ready.registration_id, channel="aeron:ipc"),
    )
    assert refusal.code == "not_supported"


@pytest.mark.parametrize("interface", ["10.99.0.0/24", "{eth9}", "10.99.0.1"])
@pytest.mark.parametrize(
    ("channel", "publication"),
    [("endpoint=10.0.0.1:5001", False), ("control-mode=manual", False),
     ("endpoint=10.0.0.1:0|control=10.0.0.1:5002|control-mode=dynamic", False),
     ("tags=5", False), ("tags=5", True), ("control-mode=manual", True),
     ("endpoint=10.0.0.1:5003", True)],
)
def test_an_interface_that_is_not_there_is_refused_on_any_channel(
    channel: str, interface: str, *, publication: bool
) -> None:
    rig = Rig()
    client = rig.client()
    rig.sub(client, "aeron:udp?endpoint=10.0.0.1:5000|tags=5")
    rig.pub(client, "aeron:udp?endpoint=10.0.0.1:5000|tags=5")
    ask = rig.pub if publication else rig.sub
    refusal = ask(client, f"aeron:udp?{channel}|interface={interface}")
    assert refusal.code == "no_interface"
    assert f"interface={interface}" in refusal.message


def test_a_removed_destination_is_closed_before_the_client_hears_of_it() -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.sub(client, "aeron:udp?control-mode=manual")
    added = rig.request(
        client,
        control.AddDestination(
            registration_id=ready.registration_id, channel="aeron:udp?endpoint=10.0.0.1:5001"
        ),
    )
    endpoint_id = rig.last(a.AddRecvDestination).endpoint_id
    request = rig.send(
        client,
        control.RemoveDestination(
            registration_id=ready.registration_id, destination_id=added.registration_id
        ),
    )
    assert rig.last(a.RemoveRecvDestination).destination_id == added.registration_id
    rig.event(                                      # the end of something else
        EventType.RELEASED, kind=ObjectKind.RECV_DESTINATION, id=endpoint_id, destination_id=12345
    )
    assert not [r for r in rig.all(a.Reply) if r.correlation_id == request]
    rig.event(
        EventType.RELEASED, kind=ObjectKind.RECV_DESTINATION, id=endpoint_id,
        destination_id=added.registration_id,
    )
    order = [type(x) for x in rig.done if isinstance(x, a.DestroyRecvDestination | a.Reply)]
    assert order[-2:] == [a.DestroyRecvDestination, a.Reply]
    assert isinstance(rig.reply(request), control.Done)


def test_a_client_that_dies_while_its_destination_is_removed_leaves_nothing() -> None:
    rig = Rig()
    client = rig.client()
    ready = rig.sub(client, "aeron:udp?control-mode=manual")
    added = rig.request(
        client,
        control.AddDestination(
            registration_id=ready.registration_id, channel="aeron:udp?endpoint=10.0.0.1:5001"
        ),
    )
    rig.send(
        client,
        control.RemoveDestination(
            registration_id=ready.registration_id, destination_id=added.registration_id
        ),
    )
    rig.lose(client)
    rig.release_all()
    rig.advance(2)
    rig.assert_nothing_left()


def test_an_ipc_subscription_meets_the_publications_of_its_stream() -> None:
    rig = Rig()
    client = rig.client()
    early = rig.pub(client, "aeron:ipc")
    rig.pub(client, "aeron:ipc", stream=8)
    rig.sub(client, "aeron:ipc")
    (notice,) = rig.notices(control.ImageAvailable)
    assert notice.correlation_id == early.original_id
    assert notice.join_position == 1024
    assert (notice.image_slot, notice.source_identity) == (-1, "aeron:ipc")
    rig.pub(client, "aeron:ipc", exclusive=True)
    assert len(rig.notices(control.ImageAvailable)) == 2


def test_a_spy_meets_the_publications_of_its_channel() -> None:
    rig = Rig()
    client = rig.client()
    rig.sub(client, "aeron-spy:aeron:udp?endpoint=10.0.0.2:40456")
    rig.pub(client, "aeron:udp?endpoint=10.0.0.2:40457")
    assert not rig.notices(control.ImageAvailable)
    publication = rig.pub(client, "aeron:udp?endpoint=10.0.0.2:40456")
    (notice,) = rig.notices(control.ImageAvailable)
    assert notice.correlation_id == publication.original_id
    assert notice.source_identity == "aeron-spy"


def test_local_subscribers_hear_the_end_of_a_publication() -> None:
    rig = Rig()
    client = rig.client()
    rig.sub(client, "aeron:ipc")
    ready = rig.pub(client, "aeron:ipc")
    rig.request(client, control.RemovePublication(registration_id=ready.registration_id))
    rig.event(EventType.PUB_DRAINED, kind=ObjectKind.PUBLICATION, id=ready.original_id)
    assert rig.notices(control.ImageUnavailable)[0].reason == "end_of_stream"


def test_subscriptions_of_one_stream_agree_on_how_to_receive_it() -> None:
    rig = Rig()
    client = rig.client()
    rig.sub(client, UNICAST)
    refusal = rig.sub(client, f"{UNICAST}|reliable=false")
    assert refusal.code == "invalid_channel"
    assert "reliable=false" in refusal.message


def test_an_image_can_be_rejected() -> None:
    rig, client, _ready = with_image()
    reply = rig.request(client, control.RejectImage(correlation_id=image_id(rig), reason="bad"))
    assert isinstance(reply, control.Done)
    assert rig.last(a.RejectImageObject).reason == "bad"
    unknown = rig.request(client, control.RejectImage(correlation_id=9999, reason="bad"))
    assert unknown.code == "unknown_registration"


def test_loss_goes_into_the_report() -> None:
    rig, _client, _ready = with_image()
    rig.event(EventType.LOSS, kind=IMAGE, id=image_id(rig), bytes=1408, position=4096, gaps=3)
    report = rig.last(a.ReportLoss)
    assert (report.lost_bytes, report.gaps, report.source) == (1408, 3, str(SOURCE))
    assert not report.settled


def test_a_stream_that_has_lived_for_a_minute_has_an_entry_of_its_own() -> None:
    rig, _client, _ready = with_image()
    for seconds, settled in ((59, False), (1, True), (3600, True)):
        rig.now_ns += seconds * 10**9
        rig.event(EventType.LOSS, kind=IMAGE, id=image_id(rig), bytes=64, position=4096, gaps=1)
        assert rig.last(a.ReportLoss).settled is settled
