# SPDX-License-Identifier: Apache-2.0
"""Subscriptions with credits, and a publisher of the real Aeron, which supports none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq
from support.hosts import PenstockHost, penstock_host
from support.messages import messages
from support.patience import Patience

import penstock
from interop import aeron
from penstock import Credits
from penstock.client._inspect import request_status

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("aeron_built")]

STREAM = 1001
COUNT = 300
TIMEOUT_S = 60.0
WINDOW = 8192
PUBLISHED = [f"--count={COUNT}", "--sizes=1000", "--seed=3", "--exclusive=0"]


@pytest.fixture
def hosts(
    directories: Callable[[str], Path]
) -> Iterator[tuple[PenstockHost, aeron.AeronHost]]:
    with (
        aeron.aeron_host(directories("aeron")) as theirs,
        penstock_host(directories("penstock")) as ours,
    ):
        yield ours, theirs


def image_of(ours: PenstockHost) -> dict[str, Any]:
    (row,) = request_status(ours.directory, 10)["images"]
    return dict(row)


def test_an_aeron_publisher_is_limited_by_the_window(
    hosts: tuple[PenstockHost, aeron.AeronHost], ports: Callable[[], int]
) -> None:
    ours, theirs = hosts
    channel = f"aeron:udp?endpoint=127.0.0.1:{ports()}"
    got: list[bytes] = []
    with (
        penstock.connect(ours.directory) as client,
        client.add_subscription(
            f"{channel}|rcv-wnd={WINDOW}", STREAM, credits=Credits(5, max_message=1000)
        ) as subscription,
        theirs.pub(f"--channel={channel}|term-length=64k", *PUBLISHED) as pub,
    ):
        patience = Patience(TIMEOUT_S)
        while not subscription.images or image_of(ours)["position"] < WINDOW - 2 * 1056:
            assert not patience.is_over, "the window is not filled"
        while len(got) < COUNT:
            (image,) = subscription.images
            before = image.position
            assert image_of(ours)["position"] <= before + WINDOW
            subscription.poll(lambda message, _header: got.append(bytes(message)), 7)
            assert not patience.is_over, f"{len(got)} messages came"
        with pytest.raises(penstock.ChannelRefused, match="its sender supports no credits"):
            subscription.withhold(TIMEOUT_S)
        assert pub.wait("done")["count"] == COUNT
    assert got == list(messages(seed=3, sizes="1000", count=COUNT))


def test_an_aeron_publisher_is_refused_where_credits_are_required(
    hosts: tuple[PenstockHost, aeron.AeronHost], ports: Callable[[], int]
) -> None:
    ours, theirs = hosts
    channel = f"aeron:udp?endpoint=127.0.0.1:{ports()}"
    with contextlib.ExitStack() as stack:
        feed = stack.enter_context(stack.enter_context(zmq.Context()).socket(zmq.SUB))
        feed.setsockopt(zmq.LINGER, 0)
        feed.setsockopt(zmq.RCVTIMEO, int(TIMEOUT_S * 1000))
        feed.subscribe(b"")
        feed.connect(f"ipc://{ours.directory}/events.sock")
        while not feed.poll(50):        # until the feed is connected
            penstock.connect(ours.directory).close()
        client = stack.enter_context(penstock.connect(ours.directory))
        subscription = client.add_subscription(
            channel, STREAM, credits=Credits(5, required=True)
        )
        stack.enter_context(theirs.pub(f"--channel={channel}|term-length=64k", *PUBLISHED))
        name = b""
        while name != b"refused":
            name, data = feed.recv_multipart()
        assert "ps-credits-required=true" in msgpack.unpackb(data)["fields"]["message"]
        assert not subscription.images
