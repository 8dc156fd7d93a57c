# SPDX-License-Identifier: Apache-2.0
"""Consumer groups in the conductor, in virtual time."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from conductor_rig import MIB, SECOND_NS
from group_rig import UDP, GroupRig

from penstock.config.protocol import control
from penstock.core.driver_types import EventType, ImageEnd, ObjectKind
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.sagas.retention import Locate, Located


def streaming(**options: Any) -> GroupRig:
    """A group, and an image of 1 MiB terms that it holds."""
    rig = GroupRig(**options)
    rig.open()
    rig.setup(rig.endpoint())
    rig.ends[rig.image()] = 4096
    return rig


def end_stream(rig: GroupRig, image: int) -> None:
    """The sender ends; the data plane lets go of the image in its time."""
    rig.event(EventType.IMAGE_INACTIVE, kind=ObjectKind.IMAGE, id=image,
              reason=ImageEnd.END_OF_STREAM)
    rig.event(EventType.IMAGE_DRAINED, kind=ObjectKind.IMAGE, id=image)
    rig.release(ObjectKind.IMAGE, image)
    rig.advance(12)


# ---- holding and acknowledging -------------------------------------------------------------------


def test_a_group_is_a_subscriber_that_only_acknowledgements_move() -> None:
    rig = streaming()
    link = rig.last(a.AddImageSubscriber)
    assert link.params.tether
    assert not rig.all(a.ReleaseTo)
    [log] = rig.logs()
    assert (log["retained_from"], log["committed"], log["end_position"]) == (0, 0, 4096)
    answer = rig.acknowledge(1024)
    assert answer.group["logs"][0]["committed"] == 1024
    moved = rig.last(a.ReleaseTo)
    assert moved.position_counter_id == link.params.position_counter_id
    assert (moved.position, moved.publication_slot) == (1024, -1)


def test_the_maximum_of_all_acknowledgements_holds() -> None:
    rig = streaming()
    rig.acknowledge(2048)
    assert rig.acknowledge(1024).group["logs"][0]["committed"] == 2048


def test_an_acknowledgement_may_be_ahead_of_the_data() -> None:
    rig = streaming()
    assert rig.acknowledge(8192).group["logs"][0]["committed"] == 4096
    rig.ends[rig.image()] = 16384
    assert rig.logs()[0]["committed"] == 8192


def test_what_the_group_does_not_hold_is_passed_over() -> None:
    rig = streaming()
    assert rig.acknowledge(2048, session_id=99).group["logs"][0]["committed"] == 0
    assert rig.acknowledge(2048, initial_term_id=4).group["logs"][0]["committed"] == 0


def test_a_position_inside_a_frame_is_refused() -> None:
    rig = streaming()
    assert rig.acknowledge(1000).code == "malformed"
    assert not rig.all(a.ReleaseTo)


def test_the_culprit_has_the_groups_name() -> None:
    rig = streaming()
    described = rig.last(a.DescribeClient)
    assert described.name == "query"
    assert rig.last(a.AddImageSubscriber).params.client_slot == described.slot


def test_the_largest_window_is_requested() -> None:
    rig = streaming(receiver_window=128 * 1024)
    assert rig.last(a.AddImageObject).params.window_bytes == MIB // 2
    assert rig.logs()[0]["window_bytes"] == MIB // 2


def test_the_group_decides_the_window_though_a_plain_subscription_was_first() -> None:
    rig = GroupRig()
    rig.sub(rig.client(), UDP)
    rig.open()
    rig.setup(rig.endpoint())
    assert rig.last(a.AddImageObject).params.window_bytes == MIB // 2


def test_a_window_that_the_channel_states_is_kept() -> None:
    rig = GroupRig()
    channel = UDP + "|rcv-wnd=64k"
    rig.open(channel)
    rig.setup(rig.endpoint())
    assert rig.last(a.AddImageObject).params.window_bytes == 64 * 1024


def test_a_window_that_was_chosen_before_is_warned_of() -> None:
    rig = GroupRig()
    rig.sub(rig.client(), UDP)
    rig.setup(rig.endpoint())
    rig.ends[rig.image()] = 0
    [warning] = rig.open().group["warnings"]
    assert "its window is 131072 bytes, of 524288" in warning


# ---- names ---------------------------------------------------------------------------------------


def test_opening_again_finds_the_same_group() -> None:
    rig = streaming()
    rig.acknowledge(1024)
    again = rig.open(expiry_ns=5 * SECOND_NS).group
    assert again["logs"][0]["committed"] == 1024
    assert again["expires_ns"] == 5 * SECOND_NS
    assert len(rig.state.subscriptions) == 1


def test_groups_of_two_names_move_apart() -> None:
    rig = streaming()
    rig.open(name="other")
    rig.acknowledge(1024)
    assert rig.logs(name="other")[0]["committed"] == 0
    assert rig.logs()[0]["committed"] == 1024


def test_an_unknown_group_is_named() -> None:
    rig = GroupRig()
    for message in (
        control.GetGroup(name="nobody", channel=UDP, stream_id=7),
        control.CloseGroup(name="nobody", channel=UDP, stream_id=7),
    ):
        answer = rig.group(message)
        assert answer.code == "unknown_group"
        assert "nobody" in answer.message


def test_a_bad_channel_leaves_nothing_behind() -> None:
    rig = GroupRig()
    assert rig.open("aeron:udp?endpoint=nowhere.invalid:1").code == "unknown_host"
    assert rig.open("aeron:udp?colour=blue").code == "invalid_channel"
    rig.release_all()
    rig.advance(30)
    rig.assert_nothing_left()


def test_a_group_is_in_no_pool_of_a_client() -> None:
    rig = GroupRig()
    answer = rig.open(UDP + "|ps-credits=5|ps-credit-pool=client", name="orders")
    assert answer.code == "invalid_channel"
    assert "ps-credit-pool=client contradicts group orders" in answer.message
    rig.assert_nothing_left()


def test_a_channel_that_has_no_room_for_its_session_is_refused() -> None:
    rig = GroupRig()
    channel = UDP + "|alias="
    channel += "a" * (control.MAX_CHANNEL_CHARS - len(channel))
    answer = rig.open(channel, sessions=[1])
    assert answer.code == "invalid_channel"
    assert str(len(channel) + len("|session-id=1")) in answer.message
    rig.advance(30)
    rig.assert_nothing_left()


def test_sessions_become_subscriptions_of_their_own() -> None:
    rig = GroupRig()
    rig.open(sessions=[43, 42, 42])
    channels = sorted(s.plan.channel for s in rig.state.subscriptions.values())
    assert channels == [UDP + "|session-id=42", UDP + "|session-id=43"]
    rig.setup(rig.endpoint(), session_id=44)
    assert not rig.state.images
    rig.setup(rig.endpoint(), session_id=43)
    rig.ends[rig.image()] = 64
    assert [log["session_id"] for log in rig.logs()] == [43]
    assert rig.open(sessions=[42]).code == "invalid_channel"
    assert rig.open(UDP + "|session-id=1", name="x", sessions=[2]).code == "invalid_channel"


def test_a_group_starts_at_the_oldest_or_behind_all_there_is() -> None:
    rig = GroupRig()
    rig.pub(rig.client(), "aeron:ipc?term-length=64k")
    rig.ends[next(iter(rig.state.publications))] = 4096
    assert rig.open("aeron:ipc", starting="earliest").group["logs"][0]["committed"] == 512
    assert rig.open("aeron:ipc", name="late").group["logs"][0]["committed"] == 4096
    rig = GroupRig()
    rig.sub(rig.client(), UDP)
    rig.setup(rig.endpoint())
    image = rig.state.images[rig.image()]
    rig.ends[image.id] = 8192
    position = rig.counters[image.params.position_counter_id]
    rig.counters[image.params.position_counter_id] = attrs.evolve(position, value=8192)
    assert rig.open(starting="earliest").group["logs"][0]["committed"] == 2048
    assert rig.open(name="late").group["logs"][0]["committed"] == 8192


# ---- the end of a stream -------------------------------------------------------------------------


def test_a_log_is_kept_past_the_end_of_its_stream_until_it_is_read() -> None:
    rig = streaming()
    image = rig.image()
    [path] = rig.files
    end_stream(rig, image)
    assert not rig.state.images
    assert rig.files == {path}
    assert rig.all(a.RemoveImageSubscriber)         # the data plane does not wait for the group
    [log] = rig.logs()
    assert (log["log_id"], log["ended"], log["end_position"]) == (image, True, 4096)
    rig.acknowledge(2048)
    assert rig.files == {path}
    assert rig.acknowledge(4096).group["logs"] == []
    assert not rig.files
    rig.group(control.CloseGroup(name="query", channel=UDP, stream_id=7))
    rig.release_all()
    rig.advance(30)
    rig.assert_nothing_left()


def test_a_log_that_was_read_ends_with_its_stream() -> None:
    rig = streaming()
    rig.acknowledge(4096)
    end_stream(rig, rig.image())
    assert not rig.files
    assert rig.logs() == []


def test_the_last_of_two_groups_lets_the_log_go() -> None:
    rig = streaming()
    rig.open(name="other")
    end_stream(rig, rig.image())
    rig.acknowledge(4096)
    assert rig.files
    rig.group(control.CloseGroup(name="other", channel=UDP, stream_id=7))
    assert not rig.files


def test_a_session_that_comes_back_is_a_second_log_and_one_acknowledgement_moves_both() -> None:
    rig = streaming()
    first = rig.image()
    rig.event(EventType.IMAGE_INACTIVE, kind=ObjectKind.IMAGE, id=first, reason=ImageEnd.TIMEOUT)
    rig.event(EventType.IMAGE_DRAINED, kind=ObjectKind.IMAGE, id=first)
    rig.setup(rig.endpoint(), term_offset=8192)
    second = max(rig.state.images)
    rig.ends[second] = 16384
    rig.release(ObjectKind.IMAGE, first)
    assert [log["log_id"] for log in rig.logs()] == [second, first]
    logs = rig.acknowledge(12288).group["logs"]
    assert [(log["log_id"], log["committed"]) for log in logs] == [(second, 12288)]


def test_a_local_publication_leaves_its_log_to_the_group() -> None:
    rig = GroupRig()
    client = rig.client()
    rig.open("aeron:ipc")
    ready = rig.pub(client, "aeron:ipc?term-length=64k")
    rig.ends[ready.original_id] = 4096
    rig.request(client, control.RemovePublication(registration_id=ready.registration_id))
    assert rig.all(a.RemovePublicationSubscriber)
    rig.event(EventType.PUB_DRAINED, kind=ObjectKind.PUBLICATION, id=ready.original_id)
    rig.advance(2)
    rig.release(ObjectKind.PUBLICATION, ready.original_id)
    assert rig.files
    [log] = rig.logs("aeron:ipc")
    assert log["ended"]
    assert log["end_position"] == 4096
    rig.acknowledge(4096, "aeron:ipc", session_id=log["session_id"],
                    initial_term_id=log["initial_term_id"])
    assert not rig.files


# ---- expiry --------------------------------------------------------------------------------------


def test_a_silent_group_expires_and_frees_the_sender() -> None:
    rig = streaming()
    rig.advance(29)
    assert not rig.all(a.RemoveImageSubscriber)
    rig.advance(2)
    assert rig.all(a.RemoveImageSubscriber)
    assert rig.state.groups_expired == 1
    assert any("has expired" in entry.text for entry in rig.all(a.LogError))
    [event] = [e for e in rig.all(a.PublishEvent) if e.name == "group_expired"]
    assert event.fields["group"] == "query"
    answer = rig.group(control.GetGroup(name="query", channel=UDP, stream_id=7))
    assert answer.code == "unknown_group"


@pytest.mark.parametrize("contact", ["state", "acknowledge", "open"])
def test_every_contact_keeps_a_group_alive(contact: str) -> None:
    rig = streaming()
    for _ in range(4):
        rig.advance(20)
        match contact:
            case "state":
                rig.logs()
            case "acknowledge":
                rig.acknowledge(32)
            case _:
                rig.open()
    assert rig.state.groups
    rig.advance(31)
    assert not rig.state.groups


def test_checking_all_groups_keeps_none_alive() -> None:
    rig = streaming()
    rig.advance(20)
    [plain] = rig.group(control.ListGroups()).groups.values()
    assert plain["expires_ns"] == 10 * SECOND_NS
    rig.advance(11)
    assert not rig.state.groups


def test_a_shorter_expiry_time_holds_at_once() -> None:
    rig = GroupRig()
    rig.open(expiry_ns=600 * SECOND_NS)
    rig.open(expiry_ns=5 * SECOND_NS)
    rig.advance(4)
    assert rig.state.groups
    rig.open(expiry_ns=20 * SECOND_NS)      # and a longer one
    rig.advance(6)
    assert rig.state.groups
    rig.advance(15)
    assert not rig.state.groups


# ---- readers -------------------------------------------------------------------------------------


def test_a_second_reader_is_refused_while_the_first_lives() -> None:
    rig = streaming()
    assert rig.open(owner="a").group["owner"] == "a"
    for second in ({"owner": "b"}, {"owner": "b", "instead_of": "c"}):
        refusal = rig.open(**second)
        assert refusal.code == "owned"
        assert "is read by a, whose last request came 0.0 s ago" in refusal.message
    assert rig.acknowledge(1024, owner="b").code == "owned"
    assert rig.logs()[0]["committed"] == 0              # whoever only looks may
    for _ in range(6):
        rig.advance(2)
        assert rig.acknowledge(64, owner="a").group["owner"] == "a"
    rig.advance(7)
    assert rig.open(owner="b").code == "owned"
    rig.advance(1)
    assert rig.open(owner="b").group["owner"] == "b"    # silent for 8 s: gone
    assert "is read by b" in rig.acknowledge(1024, owner="a").message


def test_a_reader_that_leaves_or_is_known_to_be_dead_is_followed_at_once() -> None:
    rig = streaming()
    rig.open(owner="a")
    assert rig.get(owner="a", leave=True).group["owner"] == ""
    assert rig.open(owner="b").group["owner"] == "b"
    assert rig.open(owner="c", instead_of="b").group["owner"] == "c"
    assert rig.open(owner="b", instead_of="b").code == "owned"


# ---- times ---------------------------------------------------------------------------------------


def test_times_are_told_while_a_group_keeps_the_log() -> None:
    rig = streaming()
    image = rig.image()
    question = control.ReadTimes(
        log_id=image, session_id=42, initial_term_id=3, start=128, end=256
    )
    alive = rig.group(question)
    assert (alive.positions[-1], len(alive.positions)) == (256, 2)
    end_stream(rig, image)
    kept = rig.group(question)
    assert (kept.positions, kept.times_ns) == (alive.positions, alive.times_ns)
    rig.acknowledge(4096)
    assert isinstance(rig.group(question), control.RangeGone)


def test_few_times_of_a_log_that_has_ended_reach_to_the_end_of_the_range() -> None:
    """The answer to a request for few entries joins entries: its last entry covers the range's end,
    so no message gets a time before its arrival."""
    rig = streaming()
    image = rig.image()
    end_stream(rig, image)
    question = control.ReadTimes(
        log_id=image, session_id=42, initial_term_id=3, start=128, end=4096, most=4
    )
    found = rig.group(question)
    assert 2 <= len(found.positions) <= 4
    assert found.positions[-1] == 4096
    assert found.times_ns == [10**9 * at for at in found.positions]
    assert found.positions == sorted(set(found.positions))


def test_expiry_gives_up_what_was_kept_of_an_ended_stream() -> None:
    rig = streaming()
    rig.event(EventType.IMAGE_INACTIVE, kind=ObjectKind.IMAGE, id=rig.image(),
              reason=ImageEnd.END_OF_STREAM)
    rig.release(ObjectKind.IMAGE, rig.image())
    rig.event(EventType.IMAGE_DRAINED, kind=ObjectKind.IMAGE, id=rig.image())
    assert rig.files
    rig.advance(31)
    rig.release_all()
    rig.advance(31)
    rig.assert_nothing_left()


# ---- where logs are ------------------------------------------------------------------------------


def test_a_log_is_located_for_fetches_while_a_group_holds_it() -> None:
    rig = streaming()
    rig.acknowledge(1024)
    image = rig.image()
    question = Locate(log_id=image, session_id=42, initial_term_id=3)
    found = rig.group(question)
    assert found == Located(path=rig.state.images[image].log.path, lowest=1024, end=4096)
    assert rig.state.floor(image) == 1024
    for wrong in (
        Locate(log_id=image + 1, session_id=42, initial_term_id=3),
        Locate(log_id=image, session_id=43, initial_term_id=3),
        Locate(log_id=image, session_id=42, initial_term_id=4),
    ):
        assert isinstance(rig.group(wrong), control.RangeGone)
    rig.group(control.CloseGroup(name="query", channel=UDP, stream_id=7))
    assert rig.state.floor(image) is None
    assert isinstance(rig.group(question), control.RangeGone)


def test_the_floor_rises_before_the_data_plane_may_clean() -> None:
    rig = streaming()
    rig.logs()
    rig.hold(a.ReleaseTo)
    floors: list[int | None] = []
    native = rig._perform_native

    def check(action: a.Action) -> Any:
        if isinstance(action, a.ReleaseTo):
            floors.append(rig.state.floor(rig.image()))
        return native(action)

    rig._perform_native = check          # type: ignore[method-assign]
    rig.acknowledge(2048)
    assert floors == [2048]
