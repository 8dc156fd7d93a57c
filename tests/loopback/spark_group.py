# SPDX-License-Identifier: Apache-2.0
"""A consumer group with a hundred messages, for tests of the Spark source without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

import pytest
from support.hosts import PenstockHost

import penstock
from loopback.streams import eventually
from penstock.client import GroupControl
from penstock.spark_bridge._options import SourceOptions, read_options

STREAM = 1001
CHANNEL = "aeron:ipc"
MINUTE_NS = 60 * 10**9


class Key(TypedDict):
    """What a group is known by."""

    name: str
    channel: str
    stream_id: int


KEY: Key = {"name": "planned", "channel": CHANNEL, "stream_id": STREAM}


@pytest.fixture
def control(host: PenstockHost) -> Iterator[GroupControl]:
    with GroupControl(directory=str(host.directory)) as made:
        made.open(**KEY, starting="earliest", expiry_ns=10 * MINUTE_NS)
        yield made
        for group in made.groups():
            made.close_group(
                name=group.name, channel=group.channel, stream_id=group.stream_id
            )
    with penstock.connect(host.directory) as client:    # the next group reads what it finds
        eventually(
            lambda: all(p["state"] == "linger" for p in client.status()["publications"]), "ended"
        )


@pytest.fixture
def sent(host: PenstockHost, control: GroupControl) -> Iterator[int]:
    """A hundred messages that have arrived; the position behind them."""
    with penstock.connect(host.directory) as client:
        publication = client.add_publication(CHANNEL, STREAM)
        for number in range(100):
            assert publication.send(b"message %d" % number) > 0
        end = publication.position
        eventually(
            lambda: any(x.end_position == end for x in control.state(**KEY).logs), "it is there"
        )
        yield end


def plain(host: PenstockHost) -> dict[str, str]:
    return {
        "channel": CHANNEL, "streamId": str(STREAM), "subscription": "planned",
        "daemonDir": str(host.directory),
    }


def options(host: PenstockHost, *, streaming: bool = True, **more: str) -> SourceOptions:
    return read_options(plain(host) | more, streaming=streaming)
