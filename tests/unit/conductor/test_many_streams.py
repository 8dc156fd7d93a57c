# SPDX-License-Identifier: Apache-2.0
"""The conductor's work for one stream does not grow with the number of streams. The tests count
executed lines of the conductor, in place of time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from conductor_rig import Rig
from test_adoption import TOKEN, heir, lease, mortal, registered

from penstock.config.protocol import control
from penstock.daemon.conductor import actions as a
from penstock.daemon.conductor.state.by_stream import ByStream
from penstock.daemon.restart import journal

FEW, MANY = 500, 2000
HERE = "aeron:udp?endpoint=10.0.0.1:40456"
THERE = "aeron:udp?endpoint=10.0.0.2:40456"


def lines_of(work: Callable[[], Any]) -> int:
    """Return the number of lines of the daemon's Python code that a call executes; each turn of a
    loop or of a comprehension counts."""
    count = 0

    def line(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return line

    def call(frame: FrameType, _event: str, _argument: object) -> Any:
        return line if "/daemon/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


class Streams:
    """A daemon that sends and receives streams on one channel each, and reads IPC streams."""

    def __init__(self, rig: Rig, client: int) -> None:
        self.rig, self.client = rig, client
        self.count = 0
        self.endpoint = 0

    def open(self, count: int) -> None:
        while self.count < count:
            self.add()
            self.rig.done = [d for d in self.rig.done if isinstance(d, a.Record)]

    def add(self) -> None:
        """Add a publication, a subscription with an image, and an IPC stream with a reader."""
        rig, client = self.rig, self.client
        self.count += 1
        stream = 1000 + self.count
        self.received = rig.sub(client, HERE, stream).registration_id
        self.endpoint = self.endpoint or rig.last(a.OpenRecvEndpoint).params.id
        rig.setup(self.endpoint, stream_id=stream, session_id=self.count, term_length=65536)
        rig.pub(client, THERE, stream)
        rig.pub(client, "aeron:ipc", stream)
        rig.sub(client, "aeron:ipc", stream)

    def remove(self) -> None:
        """Remove the subscription that was added last."""
        self.rig.request(self.client, control.RemoveSubscription(registration_id=self.received))


@pytest.fixture(scope="module")
def work() -> dict[int, tuple[int, int]]:
    """Executed lines to add and to remove a stream, by the number of open streams."""
    rig = Rig(storage_budget_bytes=64 << 30)
    streams = Streams(rig, rig.client())
    found = {}
    for count in (FEW, MANY):
        streams.open(count - 1)
        found[count] = lines_of(streams.add), lines_of(streams.remove)
    return found


@pytest.mark.parametrize("step", [0, 1], ids=["add", "remove"])
def test_the_work_for_one_stream_is_the_same_beside_500_and_2000(
    work: dict[int, tuple[int, int]], step: int
) -> None:
    assert work[FEW][step] > 20
    assert work[MANY][step] <= work[FEW][step] + 20


@pytest.fixture
def deep() -> Iterator[None]:
    """The rig answers each operation inside the call that requested the operation before it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("deep")
def test_an_adoption_is_linear_in_the_number_of_streams() -> None:
    found = []
    for count in (20, 160):
        dead = mortal()
        Streams(dead, lease(dead, control.LeaseRequest(name="c"), TOKEN)).open(count)
        rig = heir(dead)
        rig._numbers = dead._numbers
        records = journal.decode(registered(dead))
        found.append(lines_of(
            lambda rig=rig, records=records: rig._run(
                rig.conductor.adopt(records, dead=frozenset(), now_ns=rig.now_ns)
            )
        ))
        assert len(rig.state.images) == count
    assert found[1] <= 8.1 * found[0], found


class Stream:
    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id


def test_a_table_by_stream_is_a_mapping_in_order() -> None:
    table: ByStream[int, Stream] = ByStream()
    one, two, other = Stream(7), Stream(7), Stream(8)
    table[1], table[2], table[3] = one, other, two
    assert list(table) == [1, 2, 3]
    assert table.of_stream(7) == [one, two]
    table[1] = other
    assert (table.of_stream(7), table.of_stream(8)) == ([two], [other, other])
    assert table.pop(3) is two
    assert table.pop(3, None) is None
    assert (len(table), 3 in table, table.of_stream(7)) == (2, False, [])
