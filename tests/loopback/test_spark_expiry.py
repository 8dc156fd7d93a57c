# SPDX-License-Identifier: Apache-2.0
"""Expiry and reader of a query's consumer group, as a second query or an operator meets them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.hosts import PenstockHost

import penstock
from loopback.streams import eventually
from penstock.client import GroupControl
from penstock.spark_bridge._options import read_options
from penstock.spark_bridge._planning import Planning
from penstock.spark_bridge._subscription import SubscriptionInUse

pytestmark = pytest.mark.timeout(120)

STREAM = 1012
CHANNEL = "aeron:ipc?term-length=64k"
SECOND_NS = 10**9
OTHER = "process 1 on elsewhere"


@pytest.fixture
def control(host: PenstockHost) -> Iterator[GroupControl]:
    with GroupControl(directory=str(host.directory)) as made:
        yield made
        made.close_group(name="brief", channel=CHANNEL, stream_id=STREAM)


def planning(host: PenstockHost, *, streaming: bool = True, **more: str) -> Planning:
    return Planning(read_options({
        "channel": CHANNEL, "streamId": str(STREAM), "subscription": "brief",
        "daemonDir": str(host.directory), "startingOffsets": "earliest", **more,
    }, streaming=streaming))


def expires_s(control: GroupControl) -> float:
    return control.state(
        name="brief", channel=CHANNEL, stream_id=STREAM
    ).expires_ns / SECOND_NS


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
            state = control.state(**group)
            assert [log.committed for log in state.logs] == [0]
    finally:
        query.stop()
    assert control.state(**group).owner == OTHER, "a query that stops ends no other query's claim"
