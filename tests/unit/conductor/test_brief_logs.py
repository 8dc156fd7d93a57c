# SPDX-License-Identifier: Apache-2.0
"""A consumer group keeps the logs of ended streams, also of those that a stranger began and ended
at once: these may take a quarter of the storage and no more."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from conductor_rig import MIB, SECOND_NS
from group_rig import UDP, GroupRig
from test_conductor_group_adoption import records_of

from penstock.config.protocol import control
from penstock.core.driver_types import Address, EventType, ImageEnd, ObjectKind, SlotKind
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.state.brief_logs import MOST_LOGS

STRANGER = Address(ip="10.0.0.66", port=4000)
OWNER = Address(ip="10.0.0.7", port=4000)


def rig_of(budget_bytes: int, names: tuple[str, ...] = ("query",), **settings: Any) -> GroupRig:
    rig = GroupRig(storage_budget_bytes=budget_bytes, **settings)
    for name in names:
        rig.open(name=name, expiry_ns=10**6 * SECOND_NS)
    return rig


def stream(rig: GroupRig, session: int, source: Address, *, lasts_s: int = 0) -> int:
    """A stream comes, and goes with 4 096 bytes that the groups have not acknowledged."""
    rig.setup(rig.endpoint(), session_id=session, source=source)
    image: int = rig.last(a.AddImageObject).params.id
    rig.ends[image] = 4096
    rig.now_ns += lasts_s * SECOND_NS
    rig.event(EventType.IMAGE_INACTIVE, kind=ObjectKind.IMAGE, id=image, reason=ImageEnd.TIMEOUT)
    rig.event(EventType.IMAGE_DRAINED, kind=ObjectKind.IMAGE, id=image)
    rig.release(ObjectKind.IMAGE, image)
    return image


def sessions(rig: GroupRig, name: str = "query") -> list[int]:
    return [log["session_id"] for log in rig.logs(name=name)]


def kept(rig: GroupRig) -> int:
    return sum(len(group.retained) for group in rig.state.groups.values())


def test_strangers_take_a_quarter_of_the_storage() -> None:
    rig = rig_of(64 * MIB)
    stream(rig, 1, OWNER)
    for session in range(100, 400):
        stream(rig, session, STRANGER)
    rig.advance(30)
    assert 0 < rig.state.storage.used_bytes <= 16 * MIB
    found = sessions(rig)
    assert found[0] == 1                                # of another host, and not dropped for them
    assert found[1:] == list(range(400 - len(found) + 1, 400))
    assert len(rig.all(a.DeleteFile)) == 301 - len(found)


def test_the_error_log_has_the_address_of_dropped_data() -> None:
    rig = rig_of(64 * MIB)
    for session in range(100, 200):
        stream(rig, session, STRANGER)
    [told] = {error.text for error in rig.all(a.LogError)}       # one entry of the error log
    assert told == (
        "group query of stream 7 loses unacknowledged data of session 100 from 10.0.0.66: the logs "
        "of streams that ended within a minute exceed 1/4 of storage.budget, or 1024 logs"
    )


def test_their_number_is_bounded_too() -> None:
    rig = rig_of(64 << 30)
    for session in range(MOST_LOGS + 50):
        stream(rig, session, Address(ip=f"10.1.{session // 200}.{session % 200}", port=1))
    assert len(rig.state.brief_logs) == kept(rig) == MOST_LOGS


def test_streams_of_a_minute_are_kept() -> None:
    rig = rig_of(64 * MIB)
    for session in range(100):
        stream(rig, session, OWNER, lasts_s=61)
    assert sessions(rig) == list(range(100))
    assert rig.state.storage.used_bytes > 16 * MIB


def test_a_log_that_two_groups_keep_counts_once_and_goes_from_both() -> None:
    rig = rig_of(64 * MIB, ("query", "other"))
    for session in range(100):
        stream(rig, session, STRANGER)
    rig.advance(30)
    assert rig.state.storage.used_bytes <= 16 * MIB
    assert sessions(rig) == sessions(rig, "other")
    assert len(rig.state.brief_logs) == len(sessions(rig)) > 50


def test_a_new_daemon_counts_the_logs_of_the_dead_one() -> None:
    rig = rig_of(64 * MIB, journal=True)
    for session in range(100):
        stream(rig, session, STRANGER)
    rig.advance(30)
    heir = GroupRig(storage_budget_bytes=64 * MIB, journal=True)
    heir.ends, heir.released = dict(rig.ends), dict(rig.released)
    heir.counters, heir.slots, heir.files = dict(rig.counters), dict(rig.slots), set(rig.files)
    heir.state.next_id = itertools.count(1000).__next__
    heir._run(heir.conductor.adopt(records_of(rig), now_ns=heir.now_ns))
    assert len(heir.state.brief_logs) == len(rig.state.brief_logs) > 50
    for session in range(100, 200):
        stream(heir, session, STRANGER)
    heir.advance(30)
    assert heir.state.storage.used_bytes <= 16 * MIB


@pytest.mark.parametrize("ends", ["acknowledged", "closed"])
def test_nothing_of_them_stays(ends: str) -> None:
    rig = rig_of(64 * MIB)
    before = rig.state.storage.used_bytes
    for session in range(100):
        stream(rig, session, STRANGER)
    if ends == "closed":
        rig.group(control.CloseGroup(name="query", channel=UDP, stream_id=7))
    else:
        for session in sessions(rig):
            rig.acknowledge(4096, session_id=session)
    rig.advance(30)
    assert len(rig.state.brief_logs) == 0
    assert rig.state.storage.used_bytes == before
    assert sum(kind is SlotKind.SUBSCRIBER for kind, _ in rig.slots) == 0
