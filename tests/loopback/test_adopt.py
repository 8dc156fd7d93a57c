# SPDX-License-Identifier: Apache-2.0
"""Daemons that are killed under load, and new daemons that go on where they stood.

What is compared is everything: the hash over all messages that were accepted against the hash over
all that came, so that a message that is missing, repeated or damaged fails the test.
"""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from support.hosts import PenstockHost

import penstock
from loopback.load import FIRST_S, Receiver, Sender, finish, goes_on, two_clients
from loopback.streams import connected, eventually, receive
from penstock import Offer
from penstock.client import GroupControl
from penstock.daemon.restart import journal

NewHost = Callable[..., PenstockHost]
STREAM = 1001
RESUME_S = 2.0
DEATHS = 50


def restart(host: PenstockHost, *args: str) -> None:
    """Kills the daemon, starts another, and returns when that one is ready."""
    host.kill()
    host.start(*args)


# ---- the same session ----------------------------------------------------------------------------


@pytest.mark.timeout(900)
def test_streams_survive_fifty_deaths_under_load(
    new_host: NewHost, port: Callable[[], int], tmp_path: Path
) -> None:
    """Sending and receiving daemon, in turn and together; a shared and an exclusive session with
    fragmented messages over UDP, and IPC beside them, each in its session from the first death to
    the last.  A busy machine may take longer over a start than an image waits by default."""
    config = tmp_path / "patient.toml"
    config.write_text('[timeouts]\nimage_liveness_timeout_ns = "60s"\n')
    patient = ("--config", str(config))
    near, far = new_host(*patient), new_host(*patient)
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=256k"
    sizes = (10, 100, 1000, 9000)
    with two_clients(near, far) as (client, remote):
        shared = client.add_publication(channel, STREAM)
        exclusive = client.add_exclusive_publication(channel, STREAM)
        local = client.add_publication("aeron:ipc?term-length=128k", STREAM)
        subscription = remote.add_subscription(channel, STREAM)
        beside = client.add_subscription("aeron:ipc", STREAM)
        connected(shared, subscription)
        connected(exclusive)
        connected(local, beside)
        eventually(lambda: len(subscription.images) == 2, "both sessions are there")
        sessions = [p.session_id for p in (shared, exclusive, local)]
        receiver, reader = Receiver(subscription), Receiver(beside)
        senders = [Sender(p, sizes=sizes, seed=n) for n, p in enumerate((shared, exclusive))]
        writer = Sender(local, sizes=sizes, seed=9)
        waits = []
        for victims in itertools.islice(
            itertools.cycle([(near,), (far,), (near,), (far,), (near, far)]), DEATHS
        ):
            for victim in victims:
                victim.kill()
            for victim in victims:
                victim.start(*patient)
            waits.append(goes_on(senders, receiver))
            if near in victims:
                goes_on([writer], reader)
        finish(senders, receiver)
        finish([writer], reader)
        assert [p.session_id for p in (shared, exclusive, local)] == sessions
        assert shared.lost_sessions == exclusive.lost_sessions == local.lost_sessions == ()
    assert max(waits) < RESUME_S, waits


@pytest.mark.parametrize("victim", ["sender", "receiver"])
def test_deaths_on_a_bad_network(new_host: NewHost, port: Callable[[], int], victim: str) -> None:
    bad = ("--impair", "loss=5%,duplicate=1%,reorder=2%,seed=11")
    near, far = new_host(*bad), new_host(*bad)
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with two_clients(near, far) as (client, remote):
        publication = client.add_publication(channel, STREAM)
        subscription = remote.add_subscription(channel, STREAM)
        connected(publication, subscription)
        receiver = Receiver(subscription)
        sender = Sender(publication, sizes=(10, 1000, 5000))
        for _ in range(4):
            restart(near if victim == "sender" else far, *bad)
            goes_on([sender], receiver)
        finish([sender], receiver)
        assert publication.lost_sessions == ()


def test_a_group_hears_the_new_daemon_at_once(
    new_host: NewHost, port: Callable[[], int]
) -> None:
    """Publisher and receivers on one host: the receivers know the sender's address from the
    journal, and would drop data that came from another."""
    host = new_host()
    channel = f"aeron:udp?endpoint=239.77.20.1:{port()}|interface=127.0.0.1|fc=min"
    with two_clients(host, host) as (client, remote):
        publication = client.add_publication(f"{channel}|term-length=64k", STREAM)
        subscription = remote.add_subscription(channel, STREAM)
        connected(publication, subscription)
        receiver, sender = Receiver(subscription), Sender(publication, sizes=(64,))
        for _ in range(2):
            restart(host)
            goes_on([sender], receiver)
            (image,) = client.status()["images"]
            assert image["foreign_datagrams"] == 0
        finish([sender], receiver)
        assert publication.lost_sessions == ()


def test_what_was_accepted_before_a_close_survives_the_death(
    new_host: NewHost, port: Callable[[], int]
) -> None:
    """The client left its data to the daemon, and both are gone when the receiver comes."""
    near, far = new_host(), new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k|linger=30s"
    got: list[bytes] = []
    with two_clients(near, far) as (client, remote):
        subscription = remote.add_subscription(channel, STREAM)
        publication = client.add_publication(channel, STREAM)
        connected(publication, subscription)
        far.kill()
        for n in range(20):
            publication.send(b"%d" % n, FIRST_S)
        publication.close()
        near.kill()
        near.start()
        far.start()

        def all_there() -> bool:
            subscription.poll(lambda m, _h: got.append(bytes(m)))
            return len(got) == 20

        eventually(all_there, "what was accepted arrives")
        assert got == [b"%d" % n for n in range(20)]


# ---- clients meanwhile ---------------------------------------------------------------------------


def test_calls_wait_for_the_new_daemon(new_host: NewHost) -> None:
    host = new_host()
    with penstock.connect(host.directory) as client:
        publication = client.add_publication("aeron:ipc?term-length=64k", STREAM)
        subscription = client.add_subscription("aeron:ipc", STREAM)
        connected(publication, subscription)
        assert publication.offer(b"before") > 0
        host.kill()
        eventually(lambda: not client.is_daemon_alive, "the death is noticed")
        assert publication.offer(b"meanwhile") == Offer.DAEMON_AWAY
        got: list[bytes] = []
        assert subscription.poll(lambda m, _h: got.append(bytes(m))) == 1
        answers: list[object] = []
        calls = [
            threading.Thread(target=lambda: answers.append(publication.send(b"after", FIRST_S))),
            threading.Thread(target=lambda: answers.append(subscription.wait(FIRST_S))),
            threading.Thread(
                target=lambda: answers.append(client.add_publication("aeron:ipc", 2).stream_id)
            ),
        ]
        for call in calls:
            call.start()
        host.start()
        for call in calls:
            call.join(FIRST_S)
        assert len(answers) == 3
        assert {True, 2} <= set(answers)
        assert subscription.poll(lambda m, _h: got.append(bytes(m))) == 1
        assert got == [b"before", b"after"]


def test_without_a_new_daemon_the_client_gives_up(new_host: NewHost) -> None:
    host = new_host()
    with penstock.connect(host.directory, reattach_timeout_s=0.3) as client:
        publication = client.add_publication("aeron:ipc?term-length=64k", STREAM)
        host.kill()
        with pytest.raises(penstock.DaemonGone):
            publication.send(b"x", FIRST_S)
        with pytest.raises(penstock.DaemonGone):
            client.add_subscription("aeron:ipc", STREAM)


def test_without_waiting_a_death_is_the_end(new_host: NewHost) -> None:
    host = new_host()
    with penstock.connect(host.directory, reattach_timeout_s=0) as client:
        subscription = client.add_subscription("aeron:ipc", STREAM)
        host.kill()
        with pytest.raises(penstock.DaemonGone):
            subscription.wait(FIRST_S)


def test_an_application_learns_of_death_and_return(new_host: NewHost) -> None:
    host = new_host()
    told: list[bool] = []

    def on_daemon(alive: bool) -> None:
        told.append(alive)
        raise ValueError("the client goes on")

    with (
        penstock.connect(host.directory, on_daemon=on_daemon) as client,
        penstock.connect(host.directory, reattach_timeout_s=0, on_daemon=on_daemon),
    ):
        assert told == []
        host.kill()
        eventually(lambda: told == [False, False], "both learn of the death")
        host.start()
        eventually(lambda: told[2:] == [True], "the one that waits learns of the return")
        assert client.is_daemon_alive
    assert len(told) == 3


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_task_learns_of_death_and_return(new_host: NewHost, backend: str) -> None:
    host = new_host()

    async def test() -> None:
        told: list[tuple[bool, int]] = []
        changed = anyio.Event()

        def on_daemon(alive: bool) -> None:
            nonlocal changed
            told.append((alive, threading.get_ident()))
            changed.set()
            changed = anyio.Event()
            raise ValueError("the loop goes on")

        async with penstock.open_client(host.directory, on_daemon=on_daemon):
            with anyio.fail_after(FIRST_S):
                here = changed
                await anyio.to_thread.run_sync(host.kill)
                await here.wait()
                here = changed
                await anyio.to_thread.run_sync(host.start)
                await here.wait()
        assert told == [(False, threading.get_ident()), (True, threading.get_ident())]

    anyio.run(test, backend=backend)


def test_what_is_closed_meanwhile_is_gone_after_it(new_host: NewHost) -> None:
    host = new_host()
    with penstock.connect(host.directory, timeout_s=0.5) as client:
        keep = client.add_publication("aeron:ipc?term-length=64k", 1)
        drop = client.add_publication("aeron:ipc?term-length=64k", 2)
        counter = client.add_counter("kept", value=5)
        host.kill()
        eventually(lambda: not client.is_daemon_alive, "the death is noticed")
        drop.close()
        host.start()
        eventually(lambda: client.is_daemon_alive, "the client is back")
        eventually(
            lambda: (
                [p["stream_id"] for p in client.status()["publications"] if p["state"] == "active"]
                == [1]
            ),
            "only what was kept is there",
        )
        assert (keep.is_closed, drop.is_closed, counter.get()) == (False, True, 5)


def test_a_client_that_died_with_the_daemon_is_not_waited_for(
    new_host: NewHost, port: Callable[[], int]
) -> None:
    host = new_host()
    other = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with (
        penstock.connect(host.directory) as client,
        host.run(
            "-m", "support.pub", f"--dir={host.directory}", f"--channel={other}", "--stream=7",
            "--count=1",
        ) as peer,
    ):  # fmt: skip
        client.add_publication("aeron:ipc?term-length=64k", STREAM)
        peer.wait("added")
        host.kill()
        peer.process.kill()
        peer.process.wait()
        host.start()
        eventually(lambda: client.is_daemon_alive, "the client is back")
        eventually(
            lambda: [c["client_id"] for c in client.status()["clients"]] == [client.client_id],
            "only the living client is there",
            5.0,
        )


# ---- where the session cannot go on --------------------------------------------------------------


def spoil(host: PenstockHost) -> None:
    """Kills the daemon and damages what it wrote down."""
    host.kill()
    path = host.directory / journal.NAME
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)


def drain(host: PenstockHost) -> None:
    assert host.drain() == (0, "")


@pytest.mark.parametrize("harm", [spoil, drain])
def test_a_new_session_is_told_at_both_ends(
    new_host: NewHost, harm: Callable[[PenstockHost], None]
) -> None:
    """A damaged journal, and a daemon that was drained."""
    host = new_host()
    lost: list[penstock.LostSession] = []
    gaps: list[penstock.Gap] = []
    got: list[bytes] = []
    with penstock.connect(host.directory) as client:
        publication = client.add_publication(
            "aeron:ipc?term-length=64k", STREAM, on_session_lost=lost.append
        )
        subscription = client.add_subscription("aeron:ipc", STREAM, on_gap=gaps.append)
        connected(publication, subscription)
        session = publication.session_id
        assert publication.offer(b"before") > 0
        position = publication.position
        harm(host)
        eventually(lambda: not client.is_daemon_alive, "the death is noticed")
        host.start()
        eventually(lambda: bool(lost), "the publisher hears of it")
        assert lost == [*publication.lost_sessions]
        assert (lost[0].session_id, lost[0].position) == (session, position)
        assert lost[0].sent_position <= position
        assert publication.session_id != session
        assert publication.send(b"after", FIRST_S) > 0

        def both() -> bool:
            subscription.poll(lambda m, _h: got.append(bytes(m)))
            return len(got) == 2

        eventually(both, "both messages come")
        assert got == [b"before", b"after"]  # what was in the log is read before it is left
        if harm is not drain:  # else the end of the stream was told in order
            assert [(g.session_id, g.from_position) for g in gaps] == [(session, position)]
            assert subscription.gaps == tuple(gaps)


def test_a_receiver_that_starts_anew_tells_the_gap(
    new_host: NewHost, port: Callable[[], int]
) -> None:
    near, far = new_host(), new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    got: list[bytes] = []
    with two_clients(near, far) as (client, remote):
        publication = client.add_publication(channel, STREAM)
        subscription = remote.add_subscription(channel, STREAM)
        connected(publication, subscription)
        publication.send(b"before", FIRST_S)
        eventually(lambda: bool(subscription.poll(lambda m, _h: got.append(bytes(m)))), "it comes")
        spoil(far)
        far.start()

        def notified() -> bool:
            subscription.poll(lambda m, _h: got.append(bytes(m)))
            publication.offer(b"later")
            return b"later" in got

        eventually(notified, "the stream goes on")
        assert [gap.session_id for gap in subscription.gaps] == [publication.session_id]
        assert got[0] == b"before"


def test_an_image_that_comes_back_further_on_tells_the_gap(
    new_host: NewHost, port: Callable[[], int], tmp_path: Path
) -> None:
    """The sending daemon was away for longer than its receiver waits, and what it had in flight is
    lost: the session comes back in a new image, and nothing is skipped in silence."""
    config = tmp_path / "impatient.toml"
    config.write_text('[timeouts]\nimage_liveness_timeout_ns = "1s"\n')
    near, far = new_host(), new_host("--config", str(config))
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    notified: list[penstock.Gap | int] = []
    with two_clients(near, far) as (client, remote):
        publication = client.add_publication(channel, STREAM)
        subscription = remote.add_subscription(channel, STREAM, on_gap=notified.append)

        def take() -> None:
            subscription.poll(lambda m, _h: notified.append(int(bytes(m))))

        def has_come(number: int) -> bool:
            take()
            return number in notified

        connected(publication, subscription)
        start = publication.send(b"0", FIRST_S)
        eventually(lambda: has_come(0), "the first comes")
        far.kill()
        for number in range(1, 10):
            end = publication.send(b"%d" % number, FIRST_S)
        eventually(
            lambda: client.status()["publications"][0]["consumer_position"] == end, "all left"
        )
        near.kill()
        far.start("--config", str(config))
        eventually(lambda: not subscription.images, "the image ends", FIRST_S)
        near.start()
        publication.send(b"10", FIRST_S)
        eventually(lambda: has_come(10), "the stream goes on", FIRST_S)
        gap = penstock.Gap(
            stream_id=STREAM, session_id=publication.session_id, from_position=start,
            to_position=end, messages=9,
        )
        assert notified == [0, gap, 10]
        assert subscription.gaps == (gap,)


def test_a_start_that_fails_leaves_everything_to_the_next(
    new_host: NewHost, tmp_path: Path
) -> None:
    host = new_host()
    config = tmp_path / "penstock.toml"
    with (
        GroupControl(directory=str(host.directory), timeout_s=30) as control,
        penstock.connect(host.directory) as client,
        client.add_publication("aeron:ipc?term-length=64k", STREAM) as publication,
        client.add_subscription("aeron:ipc", STREAM) as subscription,
        socket.create_server(("127.0.0.1", 0)) as taken,
    ):
        connected(publication, subscription)
        session_id = publication.session_id
        control.open(name="q", channel="aeron:ipc", stream_id=1, expiry_ns=600 * 10**9)
        assert publication.send(b"before", 10) > 0
        host.kill()
        config.write_text(f'[metrics]\nlisten = "127.0.0.1:{taken.getsockname()[1]}"\n')
        with host.command("daemon", "--dir", str(host.directory), "--config", str(config)) as late:
            assert late.finish(60) == 2
            [line] = late.errors().splitlines()
            assert "metrics.listen" in line
        host.start()
        assert publication.send(b"after", 30) > 0
        assert receive(subscription, 2) == [b"before", b"after"]
        assert publication.session_id == session_id
        assert [group.name for group in control.groups()] == ["q"]
