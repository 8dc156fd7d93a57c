# SPDX-License-Identifier: Apache-2.0
"""The culprit in the progress of a query, as a daemon states it: no Spark is needed."""

from __future__ import annotations

import pytest
from support.hosts import PenstockHost

import penstock
from loopback.streams import eventually
from penstock.client import GroupControl
from penstock.spark_bridge._options import read_options
from penstock.spark_bridge._planning import Planning

pytestmark = pytest.mark.timeout(120)

STREAM = 1001
CHANNEL = "aeron:ipc?term-length=64k"


def test_the_progress_names_the_query_that_holds_the_sender(host: PenstockHost) -> None:
    """First the query itself, then another one that reads nothing."""
    slow = {"name": "slow", "channel": CHANNEL, "stream_id": STREAM}
    with (
        GroupControl(directory=str(host.directory)) as control,
        penstock.connect(host.directory) as client,
    ):
        control.open(**slow, starting="earliest", expiry_ns=600 * 10**9)
        planning = Planning(read_options({
            "channel": CHANNEL, "streamId": str(STREAM), "subscription": "quick",
            "daemonDir": str(host.directory), "startingOffsets": "earliest",
        }))
        try:
            offset = planning.initial()
            publication = client.add_publication(CHANNEL, STREAM)
            assert publication.wait_connected(30.0)
            while publication.offer_batch([bytes(1000)] * 8).accepted:
                pass
            end = publication.position
            eventually(
                lambda: all(log.end_position == end for log in control.state(**slow).logs), "there"
            )
            planning.latest(offset, None, 0)
            first = planning.report()["culprit"]
            assert first.startswith("quick on ")
            behind = f"slow{first.removeprefix('quick')}"

            def is_named() -> bool:
                nonlocal offset
                offset = planning.latest(offset, None, 0)
                return bool(planning.report()["culprit"] == behind)

            eventually(is_named, "the other query is named")
        finally:
            planning.stop()
            for name in ("slow", "quick"):
                control.close_group(name=name, channel=CHANNEL, stream_id=STREAM)
