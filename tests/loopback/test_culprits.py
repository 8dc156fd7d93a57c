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


def test_each_client_of_a_shared_publication_gets_the_culprit(new_host: NewHost) -> None:
    """Clients that share a publication share its account; each has a registration of its own."""
    host = new_host()
    channel = "aeron:ipc?term-length=64k|pub-wnd=32k"
    with (
        penstock.connect(host.directory, name="first") as first,
        penstock.connect(host.directory, name="second") as second,
        penstock.connect(host.directory, name="slow reader") as reader,
        first.add_publication(channel, STREAM) as publication,
        reader.add_subscription("aeron:ipc", STREAM) as subscription,
    ):
        connected(publication, subscription)
        with second.add_publication(channel, STREAM) as shared:
            assert shared.original_id == publication.original_id
            assert shared.registration_id != publication.registration_id
            who = f"client {reader.client_id} 'slow reader' (pid {os.getpid()})"
            assert f" by {who}, 32 KiB behind" in fill(shared)
            publication.close()         # the account outlives the publisher that began the stream
            assert shared.pressure().culprit == who


def test_a_reader_on_the_same_host_is_named_with_its_process_over_udp(
    new_host: NewHost, port: Callable[[], int]
) -> None:
    """The receiver is a daemon, which here is the publisher's own."""
    host = new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with (
        penstock.connect(host.directory, name="writer") as client,
        penstock.connect(host.directory, name="slow reader") as reader,
        client.add_publication(channel, STREAM) as publication,
        reader.add_subscription(channel, STREAM) as subscription,
    ):
        connected(publication, subscription)
        text = fill(publication)
        who = f"client {reader.client_id} 'slow reader' (pid {os.getpid()}) on "
        assert who in text
        pressure = publication.pressure()
        assert (pressure.client, pressure.pid) == ("slow reader", os.getpid())
        assert pressure.host == socket.gethostname()[:32]


def test_a_refusal_is_explained_at_once(new_host: NewHost) -> None:
    """The sender states the cause a moment after the refusal; who asks at once gets it too."""
    host = new_host()
    # All rounds lie in one term. Where a term begins, a late conductor is a cause of its own.
    channel = "aeron:ipc?term-length=16m|pub-wnd=32k"
    with (
        penstock.connect(host.directory) as client,
        client.add_publication(channel, STREAM) as publication,
        client.add_subscription("aeron:ipc", STREAM) as subscription,
    ):
        connected(publication, subscription)
        assert publication.pressure().summary == "held by nothing"
        for _ in range(100):
            while publication.offer(b"x" * 992) != penstock.Offer.BACK_PRESSURED:
                pass
            assert publication.pressure().cause == "slow_subscriber"
            while subscription.poll(lambda _m, _h: None, 64):
                pass
            past = publication.pressure()           # not offered again: there is room by now
            assert past.cause == "slow_subscriber"
            assert f"client {client.client_id}" in past.culprit
            while publication.offer(b"x") < 0:
                pass
            eventually(lambda: publication.pressure().cause == "none", "it goes on")


@pytest.mark.parametrize("way", ["kill", "stop"])
def test_the_absence_of_the_daemon_is_a_cause(
    new_host: NewHost, port: Callable[[], int], way: str
) -> None:
    """Whatever held the stream before does not hold it while no daemon is there."""
    host = new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with (
        penstock.connect(host.directory) as client,
        client.add_publication(channel, STREAM) as publication,
        client.add_subscription(channel, STREAM) as subscription,
    ):
        connected(publication, subscription)
        fill(publication)
        assert publication.pressure().cause == "receiver_window"
        host.kill() if way == "kill" else host.stop()
        eventually(lambda: publication.offer(b"x") == penstock.Offer.DAEMON_AWAY, "it is away")
        eventually(lambda: publication.pressure().held_ns > 50_000_000, "time passes")
        away = publication.pressure()
        assert (away.cause, away.culprit, away.client, away.pid) == ("daemon_away", "", "", 0)
        assert sum(away.blocked_ns.values()) == sum(away.blocked_by_ns.values())
        held_ns = away.blocked_ns["receiver_window"]
        host.start()
        eventually(lambda: publication.pressure().cause == "receiver_window", "it is back")
        back = publication.pressure()
        assert back.blocked_ns["daemon_away"] >= 50_000_000
        if way == "kill":           # one that stops hangs up before it stops the clock
            assert back.blocked_ns["daemon_away"] >= away.held_ns
            assert back.blocked_ns["receiver_window"] - back.held_ns <= held_ns
        assert sum(back.blocked_ns.values()) == sum(back.blocked_by_ns.values())


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
