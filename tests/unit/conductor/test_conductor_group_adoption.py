# SPDX-License-Identifier: Apache-2.0
"""Consumer groups of a daemon that died, in the conductor of the new daemon."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
from conductor_rig import Rig
from group_rig import GROUP, UDP, GroupRig
from test_conductor_groups import end_stream, streaming

from penstock.config.protocol import control
from penstock.core.driver_types import EventType, FlowControl, ImageEnd, ObjectKind, SlotKind
from penstock.daemon.conductor import actions as a
from penstock.daemon.restart import journal


def records_of(rig: Rig) -> dict[Any, Any]:
    """What the rig's conductor wrote down, as a new daemon reads it."""
    return journal.decode(journal._HEAD + b"".join(
        journal.encode(record.kind, record.key, record.fields) for record in rig.all(a.Record)
    ))


def new_daemon(rig: GroupRig) -> GroupRig:
    """A conductor that adopts what the first one wrote down."""
    heir = GroupRig(journal=True)
    heir.ends, heir.released = dict(rig.ends), dict(rig.released)
    heir.counters, heir.slots = dict(rig.counters), dict(rig.slots)
    heir.files = set(rig.files)
    heir.conductor._state.next_id = itertools.count(1000).__next__
    heir._run(heir.conductor.adopt(records_of(rig), now_ns=heir.now_ns))
    return heir


def test_a_new_daemon_goes_on_with_groups_positions_and_kept_logs() -> None:
    rig = streaming(journal=True)
    first = rig.image()
    end_stream(rig, first)
    rig.setup(rig.endpoint(), session_id=50)
    second = rig.image()
    rig.ends[second] = 8192
    rig.acknowledge(4096, session_id=50)
    heir = new_daemon(rig)
    logs = {log["log_id"]: log for log in heir.logs()}
    assert (logs[first]["ended"], logs[first]["committed"], logs[first]["end_position"]) == \
        (True, 0, 4096)
    assert logs[second]["committed"] == 4096
    assert heir.last(a.AddImageSubscriber).params.tether
    assert heir.last(a.DescribeClient).name == "query"
    assert heir.acknowledge(4096).group["logs"][0]["log_id"] == second
    assert heir.files == {heir.state.images[second].log.path}
    heir.advance(29)
    assert heir.state.groups
    heir.advance(2)
    assert not heir.state.groups


def test_a_death_while_an_image_drains_loses_nothing_and_leaves_nothing() -> None:
    rig = streaming(journal=True)
    image = rig.image()
    rig.event(EventType.IMAGE_INACTIVE, kind=ObjectKind.IMAGE, id=image, reason=ImageEnd.TIMEOUT)
    heir = new_daemon(rig)
    heir.release_all()
    [log] = heir.logs()
    assert (log["log_id"], log["ended"], log["end_position"]) == (image, True, 4096)
    heir.setup(heir.endpoint(), term_offset=4096)   # the session comes back
    again = max(heir.state.images)
    heir.ends[again] = 8192
    assert again != image
    path = log["log_path"]
    assert path in heir.files
    heir.acknowledge(4096)
    assert path not in heir.files
    assert [x["log_id"] for x in heir.logs()] == [again]


def test_a_new_daemon_knows_the_strategy_of_other_hosts() -> None:
    rig = GroupRig(journal=True)
    rig.open(GROUP, allow_unreliable=True)
    rig.setup(rig.endpoint(), flags=0x40, peer_flow_control=int(FlowControl.MAX))
    rig.ends[rig.image()] = 0
    [before] = rig.open(GROUP, allow_unreliable=True).group["unreliable"]
    assert "flow control is max" in before
    assert new_daemon(rig).open(GROUP, allow_unreliable=True).group["unreliable"] == [before]


def test_an_image_that_cannot_be_adopted_stays_readable() -> None:
    rig = streaming(journal=True)
    image = rig.image()
    rig.acknowledge(1024)
    heir = GroupRig(journal=True)
    heir.ends, heir.released = dict(rig.ends), dict(rig.released)
    heir.counters, heir.slots, heir.files = dict(rig.counters), dict(rig.slots), set(rig.files)
    heir.fail(a.AddImageObject, message="no memory")
    heir._run(heir.conductor.adopt(records_of(rig), now_ns=0))
    [log] = heir.logs()
    assert (log["log_id"], log["ended"], log["committed"], log["end_position"]) == \
        (image, True, 1024, 4096)


def test_a_publication_that_cannot_be_adopted_stays_readable() -> None:
    rig = GroupRig(journal=True)
    rig.open("aeron:ipc")
    ready = rig.pub(rig.client(), "aeron:ipc?term-length=64k")
    rig.ends[ready.original_id] = 4096
    heir = GroupRig(journal=True)
    heir.ends, heir.released = dict(rig.ends), dict(rig.released)
    heir.counters, heir.slots, heir.files = dict(rig.counters), dict(rig.slots), set(rig.files)
    heir.fail(a.AddPublicationObject, message="no memory")
    heir._run(heir.conductor.adopt(records_of(rig), now_ns=0))
    [log] = heir.logs("aeron:ipc")
    assert (log["log_id"], log["ended"], log["end_position"]) == (ready.original_id, True, 4096)


def test_slots_and_counters_of_groups_are_in_use() -> None:
    from penstock.daemon.conductor.sagas.adopt import counters_in_use, logs_in_use, slots_in_use

    rig = streaming(journal=True)
    end_stream(rig, rig.image())
    heir = new_daemon(rig)
    [kept] = [kept for group in heir.state.groups.values() for kept in group.retained.values()]
    [group] = heir.state.groups.values()
    assert kept.counter_id in counters_in_use(heir.state)
    assert {(SlotKind.SUBSCRIBER, kept.slot), (SlotKind.GROUP, group.slot),
            (SlotKind.CLIENT, group.client.slot)} <= slots_in_use(heir.state)
    assert logs_in_use(heir.state) == {kept.log.path}


# ---- a death at any moment -----------------------------------------------------------------------


@attrs.frozen
class Moment:
    """What stands in the directory just before a record is written."""

    counters: dict[int, Any]
    slots: dict[Any, Any]
    files: set[str]
    released: dict[int, int]


class ShortLived(GroupRig):
    """A conductor of which every moment is known."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        super().__init__(journal=True)

    def _perform(self, action: a.Action) -> Any:
        if isinstance(action, a.Record):
            self.moments.append(
                Moment(dict(self.counters), dict(self.slots), set(self.files), dict(self.released))
            )
        return super()._perform(action)

    def heir(self, cut: int) -> GroupRig:
        """A new daemon, had this one died before it wrote record ``cut``."""
        made = GroupRig(journal=True)
        moment = self.moments[cut]
        made.counters, made.slots = dict(moment.counters), dict(moment.slots)
        made.files, made.released = set(moment.files), dict(moment.released)
        made._numbers = self._numbers
        made.ends = dict(self.ends)
        made.conductor._state.next_id = itertools.count(1000).__next__
        records = journal.decode(journal._HEAD + b"".join(
            journal.encode(r.kind, r.key, r.fields) for r in self.all(a.Record)[:cut]
        ))
        made._run(made.conductor.adopt(records, now_ns=made.now_ns))
        return made


def life() -> ShortLived:
    """Two groups of a stream that ends, and one of a local publication that is closed."""
    rig = ShortLived()
    rig.open()
    rig.open(name="other", sessions=[42])
    rig.setup(rig.endpoint())
    image = rig.image()
    rig.ends[image] = 4096
    rig.acknowledge(1024)
    client = rig.client()
    rig.open("aeron:ipc")
    ready = rig.pub(client, "aeron:ipc?term-length=64k")
    rig.ends[ready.original_id] = 4096
    end_stream(rig, image)
    rig.request(client, control.RemovePublication(registration_id=ready.registration_id))
    rig.event(EventType.PUB_DRAINED, kind=ObjectKind.PUBLICATION, id=ready.original_id)
    rig.advance(2)
    rig.release(ObjectKind.PUBLICATION, ready.original_id)
    rig.acknowledge(4096)
    rig.group(control.CloseGroup(name="other", channel=UDP, stream_id=7))
    return rig


def test_after_a_death_at_any_moment_each_log_is_held_once_and_let_go_once() -> None:
    rig = life()
    assert len(rig.moments) > 25
    for cut in range(len(rig.moments)):
        heir = rig.heir(cut)
        for plain in heir.group(control.ListGroups()).groups.values():
            ids = [log["log_id"] for log in plain["logs"]]
            assert len(ids) == len(set(ids)), f"before record {cut}"
            for log in plain["logs"]:   # what nobody adds to any more has ended
                live = {*heir.state.images, *heir.state.publications}
                assert log["ended"] == (log["log_id"] not in live), f"before record {cut}"
        heir.advance(31)                # frees each slot and counter: the rig has each once
        assert not heir.state.groups
        assert not heir.state.holdings


def test_a_death_between_the_first_status_message_and_the_last_link_loses_no_first_data() -> None:
    """The sender may have sent a window, and would send none of it again to an image that joins
    later."""
    rig = ShortLived()
    rig.open()
    rig.open(name="other")
    rig.setup(rig.endpoint(), established=False)
    image = rig.image()
    params = rig.last(a.AddImageObject).params
    before = len(rig.all(a.Record))
    position = params.position_counter_id
    rig.counters[position] = attrs.evolve(rig.counters[position], value=4096)
    rig.ends[image] = 4096
    rig.event(EventType.IMAGE_ESTABLISHED, kind=ObjectKind.IMAGE, id=image)
    rig.advance(1)
    rig.acknowledge(1024)
    for cut in range(before, len(rig.moments)):
        heir = rig.heir(cut)
        for name in ("query", "other"):
            [log] = heir.logs(name=name)
            assert log["log_id"] == image, f"before record {cut}"
            assert log["committed"] in (0, 1024)
            assert log["end_position"] == 4096
        assert heir.last(a.AddImageObject).params.consumption in (0, 1024)
        assert not heir.last(a.AddImageObject).params.half_open


def test_an_image_without_a_frame_is_adopted_and_shown_with_its_first_frame() -> None:
    rig = GroupRig(journal=True)
    rig.open()
    rig.setup(rig.endpoint(), established=False, term_offset=4096)
    image = rig.image()
    heir = new_daemon(rig)
    heir.ends[image] = 8192
    params = heir.last(a.AddImageObject).params
    assert (params.adopted, params.half_open, params.consumption) == (True, True, 4096)
    assert heir.logs() == []
    assert heir.state.half_open_bytes == rig.state.half_open_bytes > 0
    heir.event(EventType.IMAGE_ESTABLISHED, kind=ObjectKind.IMAGE, id=image)
    [log] = heir.logs()
    assert (log["log_id"], log["committed"], log["end_position"]) == (image, 4096, 8192)
    assert heir.state.half_open_bytes == 0


def test_an_adopted_image_that_never_gets_a_frame_leaves_nothing() -> None:
    rig = GroupRig(journal=True)
    rig.open()
    rig.setup(rig.endpoint(), established=False)
    heir = new_daemon(rig)
    heir.event(
        EventType.IMAGE_INACTIVE, kind=ObjectKind.IMAGE, id=rig.image(), reason=ImageEnd.TIMEOUT
    )
    heir.release_all()
    assert not heir.files
    assert heir.state.half_open_bytes == heir.state.storage.used_bytes == 0
    assert not records_of(heir).get(("image", (rig.image(),)))
