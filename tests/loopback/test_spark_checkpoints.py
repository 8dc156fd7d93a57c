# SPDX-License-Identifier: Apache-2.0
"""A query with ``withholdOnCheckpoint``: publishers wait from the plan of a batch to its commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.hosts import PenstockHost
from support.java import needs_java
from support.spark import Query, Sink, local_session

import penstock
from loopback.streams import eventually
from penstock import Offer
from penstock.client import GroupControl

pytestmark = [
    needs_java,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
]
STREAM = 7
NUMBER = 20
BURST = 7                               # credits are left when a batch begins
COUNT = 6 * BURST


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with local_session() as session:
        yield session


class Checking(Sink):
    """Checks in each batch that no message is in flight, and that none can be sent."""

    def __init__(self, publication: penstock.Publication) -> None:
        super().__init__()
        self._publication = publication
        self.found: list[tuple[int, int, int]] = []

    def __call__(self, df: DataFrame, batch: int) -> None:
        super().__call__(df, batch)
        rows = self.batches[batch]
        if not rows:        # planned before the first message
            return
        code = self._publication.offer(b"probe")
        last = max(row.position for row in rows)
        self.found.append((code, last, self._publication.position))


def test_no_message_is_in_flight_when_a_batch_is_committed(
    spark: SparkSession, host: PenstockHost, remote: penstock.Client, port: Callable[[], int],
    tmp_path: Path,
) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=1m|ps-credits={NUMBER}"
    options = {
        "channel": channel, "streamId": str(STREAM), "subscription": "checkpoints",
        "daemonDir": str(host.directory), "startingOffsets": "earliest",
        "withholdOnCheckpoint": "true",
    }
    group = {"name": "checkpoints", "channel": channel, "stream_id": STREAM}
    sent = [b"%03d" % number for number in range(COUNT)]
    with (
        GroupControl(directory=str(host.directory)) as control,
        remote.add_publication(channel, STREAM) as publication,
    ):
        control.open(**group, expiry_ns=300 * 10**9)
        eventually(lambda: publication.credits.available == NUMBER, "no grant")
        sink = Checking(publication)
        with Query(spark, options, tmp_path / "c", sink) as query:
            for first in range(0, COUNT, BURST):
                for message in sent[first : first + BURST]:
                    publication.send(message, 300.0)
                query.until_rows(first + BURST)
        assert sink.values() == sent
        assert sink.found
        for code, last, position in sink.found:
            assert (code, last) == (Offer.NO_CREDIT, position)
        # A stopped query lets its publishers continue.
        eventually(lambda: publication.offer(b"x") > 0, "the publisher waits for a stopped query")
        control.close_group(**group)
