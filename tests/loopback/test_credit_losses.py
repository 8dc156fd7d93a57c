# SPDX-License-Identifier: Apache-2.0
"""Handles of credits that an application drops, as the event feed of the daemon shows them."""

from __future__ import annotations

import gc
from collections.abc import Callable

import msgpack
import pytest
import zmq
from support.hosts import PenstockHost

import penstock
from loopback.streams import TIMEOUT_S, connected
from penstock import Credits

STREAM = 1001


@pytest.mark.parametrize("medium", ["ipc", "unicast"])
def test_a_dropped_handle_is_an_event(
    medium: str, host: PenstockHost, peer: PenstockHost, port: Callable[[], int]
) -> None:
    channel = "aeron:ipc?term-length=64k" if medium == "ipc" else \
        f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    near = host if medium == "ipc" else peer
    with zmq.Context() as context, context.socket(zmq.SUB) as feed, \
            penstock.connect(near.directory) as sender, \
            penstock.connect(host.directory, name="careless") as receiver, \
            receiver.add_subscription(
                channel, STREAM, credits=Credits(4, handles=True)) as subscription, \
            sender.add_publication(channel, STREAM) as publication:
        feed.setsockopt(zmq.LINGER, 0)
        feed.setsockopt(zmq.RCVTIMEO, int(TIMEOUT_S * 1000))
        feed.subscribe(b"")
        feed.connect(f"ipc://{host.directory}/events.sock")
        connected(publication, subscription)
        while not feed.poll(50):        # until the feed is connected
            with penstock.connect(host.directory, name="noise"):
                pass
        for _ in range(3):
            publication.send(b"message", TIMEOUT_S)
        kept = subscription.recv(TIMEOUT_S)
        for _ in range(2):
            assert subscription.recv(TIMEOUT_S) == b"message"
        gc.collect()
        with pytest.warns(ResourceWarning, match="leaked"):
            subscription.poll(lambda _m, _h: None)
        told = []
        while sum(fields["credits"] for fields in told) < 2:
            name, data = feed.recv_multipart()
            if name == b"credits_lost":
                told.append(msgpack.unpackb(data)["fields"])
        kept.credit.release()
    assert {(fields["name"], fields["stream_id"]) for fields in told} == {("careless", STREAM)}
