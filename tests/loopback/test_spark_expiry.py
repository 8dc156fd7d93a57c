# SPDX-License-Identifier: Apache-2.0
"""Expiry and reader of a query's consumer group, as a second query or an operator meets them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
from support.hosts import PenstockHost

import penstock
from loopback.streams import eventually
from penstock.client import GroupControl, GroupState
from penstock.spark_bridge import _owner, _subscription
from penstock.spark_bridge._options import read_options
from penstock.spark_bridge._planning import Planning
from penstock.spark_bridge._subscription import SubscriptionInUse

pytestmark = pytest.mark.timeout(120)

STREAM = 1012
CHANNEL = "aeron:ipc?term-length=64k"
SECOND_NS = 10**9
OTHER = "process 1 on elsewhere"
RUNNER = """
import json, signal, sys
from pyspark.sql.types import StructType
from penstock.spark_bridge._options import read_options
from penstock.spark_bridge._source import StreamReader

reader = StreamReader(read_options(json.loads(sys.argv[1])), StructType())
reader.initialOffset()
print(json.dumps({"event": "runs"}), flush=True)
signal.pause()
"""


@pytest.fixture
def control(host: PenstockHost) -> Iterator[GroupControl]:
    with GroupControl(directory=str(host.directory)) as made:
        yield made
        made.close_group(name="brief", channel=CHANNEL, stream_id=STREAM)


def plain(host: PenstockHost) -> dict[str, str]:
    return {
        "channel": CHANNEL, "streamId": str(STREAM), "subscription": "brief",
        "daemonDir": str(host.directory), "startingOffsets": "earliest",
    }


def planning(host: PenstockHost, *, streaming: bool = True, **more: str) -> Planning:
    return Planning(read_options(plain(host) | more, streaming=streaming))


def state(control: GroupControl) -> GroupState:
    return control.state(name="brief", channel=CHANNEL, stream_id=STREAM)


def expires_s(control: GroupControl) -> float:
    return state(control).expires_ns / SECOND_NS


def test_the_last_query_states_the_expiry_and_a_batch_read_does_not(
    host: PenstockHost, control: GroupControl
) -> None:
    """A shorter time applies as soon as the query has started, and so does a longer one."""
    for expiry_s in (600, 20, 90):
        query = planning(host, groupExpiry=f"{expiry_s}s")
        try:
            query.initial()
            assert 0 < expires_s(control) <= expiry_s
            assert expires_s(control) > expiry_s / 2
        finally:
            query.stop()
        reading = planning(host, streaming=False, groupExpiry="5s")
        try:
            reading.batch()
        finally:
            reading.stop()
        assert expires_s(control) > max(5, expiry_s / 2)


def test_a_second_query_on_a_subscription_is_refused(
    host: PenstockHost, control: GroupControl
) -> None:
    """By the name of the first; once that has stopped, at once the next may begin."""
    first, second = planning(host), planning(host, groupExpiry="7s")
    try:
        start = first.initial()
        with pytest.raises(SubscriptionInUse, match=rf"is read by process {os.getpid()} on "):
            second.initial()
        first.latest(start, None, 0)
        assert state(control).owner.startswith(f"process {os.getpid()} on ")
        assert expires_s(control) > 7, "a query that was refused has changed the group"
        batch = planning(host, streaming=False)
        batch.batch()                   # which only looks
        batch.stop()
        first.stop()
        assert second.initial() == start
    finally:
        second.stop()
    assert state(control).owner == ""


def test_a_query_that_is_refused_leaves_no_group_of_another_stream(
    host: PenstockHost, control: GroupControl
) -> None:
    """It would limit the sender of that stream until it expires."""
    first = planning(host)
    second = planning(host, streamId=f"{STREAM + 1},{STREAM}")
    try:
        first.initial()
        with pytest.raises(SubscriptionInUse, match=f"stream {STREAM} on .* is read by process"):
            second.initial()
    finally:
        second.stop()
        first.stop()
    assert [group.stream_id for group in control.groups()] == [STREAM]


def test_a_killed_query_is_followed_at_once(
    host: PenstockHost, control: GroupControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the time after which a daemon gives a silent reader up."""
    found: list[bool] = []

    def is_dead(owner: str) -> bool:
        found.append(_owner.is_dead(owner))
        return found[-1]

    monkeypatch.setattr(_subscription, "is_dead", is_dead)
    with host.run("-c", RUNNER, json.dumps(plain(host))) as runner:
        runner.wait("runs")
        assert f"process {runner.process.pid} on" in state(control).owner
        runner.process.kill()
        runner.process.wait()
    query = planning(host)
    try:
        query.initial()
        owner = state(control).owner
    finally:
        query.stop()
    assert owner.startswith(f"process {os.getpid()} on")
    assert found == [True]          # the first look shows it, and the next request is granted


def test_a_query_whose_subscription_was_taken_over_names_the_reader_and_acknowledges_nothing(
    host: PenstockHost, control: GroupControl
) -> None:
    group = {"name": "brief", "channel": CHANNEL, "stream_id": STREAM}
    query = planning(host)
    try:
        start = query.initial()
        with penstock.connect(host.directory) as client:
            publication = client.add_publication(CHANNEL, STREAM)
            assert publication.wait_connected(30.0)
            for number in range(10):
                publication.send(b"message %d" % number)
            end = publication.position
            eventually(
                lambda: any(x.end_position == end for x in control.state(**group).logs), "there"
            )
            planned = query.latest(start, None, 0)
            assert list(planned.positions.values()) == [end]
            owner = control.state(**group).owner
            control.open(
                **group, starting="earliest", expiry_ns=600 * SECOND_NS, owner=OTHER,
                instead_of=owner,
            )
            for refused in (
                lambda: query.latest(planned, None, 0), lambda: query.acknowledge(planned),
                lambda: query.partitions(start, planned),
            ):
                with pytest.raises(SubscriptionInUse, match=f"is read by {OTHER}"):
                    refused()
            assert [log.committed for log in state(control).logs] == [0]
    finally:
        query.stop()
    assert control.state(**group).owner == OTHER, "a query that stops ends no other query's claim"
