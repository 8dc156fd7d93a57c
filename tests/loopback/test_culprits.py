# SPDX-License-Identifier: Apache-2.0
"""A publisher that gets no room hears who holds it: the client by name, here or on another host."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import trio

import penstock
from loopback.conftest import NewHost
from loopback.streams import connected, eventually
from penstock import Client, Publication
from penstock.core.pressure import NO_PRESSURE, Party

STREAM = 1001
KIB = 1024


def fill(publication: Publication) -> str:
    """Sends until there is no room; what the time-out says."""
    caught = ""
    while not caught:
        try:
            publication.send(b"x" * 992, 0.3)
        except penstock.TimeoutExpired as error:
            caught = str(error)
    return caught


def test_a_local_reader_is_named_with_its_process(new_host: NewHost) -> None:
    host = new_host()
    with (
        penstock.connect(host.directory, name="writer") as client,
        penstock.connect(host.directory, name="slow reader") as reader,
        client.add_publication("aeron:ipc?term-length=64k|pub-wnd=32k", STREAM) as publication,
        reader.add_subscription("aeron:ipc", STREAM) as subscription,
    ):
        connected(publication, subscription)
        text = fill(publication)
        who = f"client {reader.client_id} 'slow reader' (pid {os.getpid()})"
        assert re.search(
            rf"held \d+\.\d s by {re.escape(who)}, 32 KiB behind$", text
        ), text
        pressure = publication.pressure()
        assert (pressure.culprit, pressure.client) == (who, "slow reader")
        assert pressure.backlog_bytes == 32 * KIB
        assert pressure.held_ns > 0
        assert pressure.blocked_by_ns[who] > 0


def remote_reader(far: Client, channel: str) -> penstock.Subscription:
    return far.add_subscription(channel, STREAM)


def test_a_remote_reader_is_named_with_its_host(
    new_host: NewHost, port: Callable[[], int]
) -> None:
    near, far = new_host(), new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    name = "a reader with a name of more than 32 bytes"
    with (
        penstock.connect(near.directory, name="writer") as client,
        penstock.connect(far.directory, name=name) as reader,
        client.add_publication(channel, STREAM) as publication,
        reader.add_subscription(channel, STREAM) as subscription,
    ):
        connected(publication, subscription)
        text = fill(publication)
        who = f"client {reader.client_id} '{name[:32]}' on {socket.gethostname()[:32]}"
        eventually(
            lambda: publication.pressure().culprit.endswith(who),
            f"{who} is not named: {publication.pressure()}", 10.0,
        )
        assert re.search(r"held \d+\.\d s by receiver -?\d+ at 127\.0\.0\.1:\d+", text), text
        pressure = publication.pressure()
        assert (pressure.client, pressure.reason_client) == (name[:32], reader.client_id)
        assert pressure.backlog_bytes > 16 * KIB
        assert pressure.summary.endswith(" behind")
        [row] = [p for p in client.status()["publications"] if p["stream_id"] == STREAM]
        assert row["culprit"] == pressure.culprit           # what `penstock flows` shows


def test_a_plain_peer_is_named_by_its_address(
    new_host: NewHost, port: Callable[[], int], tmp_path: Path
) -> None:
    config = tmp_path / "plain.toml"
    config.write_text("[extensions]\nadvertise = false\n")
    near, far = new_host(), new_host("--config", str(config))
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with (
        penstock.connect(near.directory) as client,
        penstock.connect(far.directory, name="reader") as reader,
        client.add_publication(channel, STREAM) as publication,
        reader.add_subscription(channel, STREAM) as subscription,
    ):
        connected(publication, subscription)
        text = fill(publication)
        assert re.search(r"by receiver -?\d+ at 127\.0\.0\.1:\d+$", text), text


def test_refusals_are_counted_until_the_next_success(new_host: NewHost) -> None:
    host = new_host()
    with (
        penstock.connect(host.directory, name="writer") as client,
        client.add_publication("aeron:ipc?term-length=64k", STREAM) as publication,
        client.add_subscription("aeron:ipc?term-length=64k", STREAM) as subscription,
    ):
        connected(publication, subscription)
        before = sum(publication.pressure().refused.values())
        fill(publication)
        eventually(lambda: publication.pressure().cause == "slow_subscriber", "a cause")
        for _ in range(10):
            assert publication.offer(b"x") == penstock.Offer.BACK_PRESSURED
        held = publication.pressure()
        assert held.refused["slow_subscriber"] >= 10
        assert sum(held.refused.values()) > before + 10
        while publication.offer(b"x") < 0:
            subscription.poll(lambda *_: None, 100)
        after = publication.pressure()
        assert after.refused_episodes > held.refused_episodes
        assert after.refused_ns > held.refused_ns
        assert sum(after.blocked_by_ns.values()) == after.total_ns
        row = next(iter(client.status()["publications"]))
        assert row["refused"] == dict(publication.pressure().refused)


def test_an_older_penstock_states_an_id_alone() -> None:
    view = attrs.evolve(
        NO_PRESSURE, culprit=Party(
            id=7, address="10.0.0.2:40456", text="receiver 7 at 10.0.0.2:40456"
        ), reason_client=9,
    )
    assert view.culprit_text == "receiver 7 at 10.0.0.2:40456: client 9"
    assert view.client == (9, "")
    assert attrs.evolve(view, reason_client=0).culprit_text == "receiver 7 at 10.0.0.2:40456"


async def test_an_asynchronous_sender_hears_the_same(new_host: NewHost) -> None:
    host = new_host()
    async with penstock.open_client(host.directory, name="writer") as client:
        with penstock.connect(host.directory, name="slow reader") as reader:
            publication = await client.add_publication(
                "aeron:ipc?term-length=64k|pub-wnd=32k", STREAM
            )
            subscription = await trio.to_thread.run_sync(remote_reader, reader, "aeron:ipc")
            await publication.wait_connected(30)
            for _ in range(32):                 # the window
                await publication.send(b"x" * 992, 30)
            with pytest.raises(penstock.TimeoutExpired, match=r"'slow reader' \(pid \d+\), 32 KiB"):
                await publication.send(b"x" * 992, 0.3)
            subscription.close()
