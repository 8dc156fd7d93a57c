# SPDX-License-Identifier: Apache-2.0
"""Daemons that are stopped in order: they hand their streams over, or drain them."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from support.hosts import PenstockHost

import penstock
from loopback.load import FIRST_S, Receiver, Sender, finish, goes_on, two_clients
from loopback.streams import connected, eventually, receive
from loopback.test_groups import Group
from penstock import Client, Offer, Publication, Subscription
from penstock.client import GroupControl
from penstock.client._inspect import request_status
from penstock.daemon.restart import journal

NewHost = Callable[..., PenstockHost]
Port = Callable[[], int]
STREAM = 1001
RESTARTS = 10
START_CPU_S = 1.0
IPC = "aeron:ipc?term-length=64k"

# Offers COUNT messages, closes, and ends, when a line on standard input says so.
LEAVER = """
import sys, penstock
client = penstock.connect(sys.argv[1], name="leaver")
publication = client.add_publication(sys.argv[2], int(sys.argv[3]))
assert publication.wait_connected(60)
print("connected", flush=True)
sys.stdin.readline()
for n in range(int(sys.argv[4])):
    publication.send(b"%d" % n, 60)
print("sent", flush=True)
sys.stdin.readline()
publication.close()
client.close()
"""


@contextlib.contextmanager
def stream(host: PenstockHost, channel: str = IPC) -> Iterator[tuple[Client, Publication,
                                                                      Subscription]]:
    with (
        penstock.connect(host.directory, name="one") as client,
        client.add_publication(channel, STREAM) as publication,
        client.add_subscription(channel, STREAM) as subscription,
    ):
        connected(publication, subscription)
        yield client, publication, subscription


def names(file: Path, text: str) -> bool:
    return text in file.read_text()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def say(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@contextlib.contextmanager
def leaver(host: PenstockHost, channel: str, count: int) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", LEAVER, str(host.directory), channel, str(STREAM), str(count)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert line(process) == "connected"
            yield process
        finally:
            process.kill()


# ---- hand over -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_daemon_hands_over(new_host: NewHost, number: signal.Signals) -> None:
    host = new_host()
    with stream(host) as (client, publication, subscription):
        session = publication.session_id
        counter = client.add_counter("kept", value=7)
        assert publication.offer(b"before") > 0
        os.kill(host.pid, number)
        eventually(lambda: not client.is_daemon_alive, "the client hears of it")
        assert host.wait_end() == 0
        assert publication.offer(b"meanwhile") == Offer.DAEMON_AWAY
        host.start()
        assert publication.send(b"after", FIRST_S) > 0
        assert receive(subscription, 2) == [b"before", b"after"]
        assert (publication.session_id, publication.lost_sessions) == (session, ())
        assert (subscription.gaps, counter.get()) == ((), 7)
    host.stop()
    assert not host.directory.exists()


@pytest.mark.slow
def test_ten_restarts_of_each_daemon_in_a_lossy_transfer(
    new_host: NewHost, port: Port, tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Byte for byte, in one session.  How long the stream pauses is reported; what is judged is the
    processor time that a start takes, so that another program's load proves nothing.  A busy
    machine may take longer over a start than an image waits by default."""
    config = tmp_path / "patient.toml"
    config.write_text('[timeouts]\nimage_liveness_timeout_ns = "60s"\n')
    bad = ("--impair", "loss=3%,seed=5", "--config", str(config))
    near, far = new_host(*bad), new_host(*bad)
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=256k"
    with two_clients(near, far) as (client, remote):
        publication = client.add_publication(channel, STREAM)
        subscription = remote.add_subscription(channel, STREAM)
        connected(publication, subscription)
        session = publication.session_id
        receiver = Receiver(subscription)
        sender = Sender(publication, sizes=(10, 100, 1000, 5000))
        starts, pauses = [], []
        for victim in itertools.islice(itertools.cycle([near, far]), 2 * RESTARTS):
            receiver.longest_pause_s = 0.0
            assert victim.end() == 0
            victim.start(*bad)
            starts.append(victim.cpu_s())
            goes_on([sender], receiver)
            pauses.append(receiver.longest_pause_s)
        finish([sender], receiver)
        assert (publication.session_id, publication.lost_sessions) == (session, ())
    record_property("pauses_ms", [round(1000 * pause) for pause in pauses])
    record_property("start_cpu_ms", [round(1000 * start) for start in starts])
    assert max(starts) < START_CPU_S, starts


def test_without_clients_nothing_stays(new_host: NewHost) -> None:
    host = new_host()
    with stream(host) as (_, publication, _subscription):
        assert publication.offer(b"x") > 0
    assert host.end() == 0
    assert not host.directory.exists()


def test_what_a_client_accepted_and_left_while_no_daemon_was_there_arrives(
    new_host: NewHost, port: Port
) -> None:
    """Its process has ended when the new daemon comes, so that nobody requests its stream."""
    near, far = new_host(), new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    got: list[bytes] = []
    with (
        penstock.connect(far.directory) as remote,
        remote.add_subscription(channel, STREAM) as subscription,
        leaver(near, channel, 20) as process,
    ):
        eventually(lambda: subscription.is_connected, "connected")
        far.kill()                      # nothing is received from here on
        say(process)
        assert line(process) == "sent"
        assert near.end() == 0
        say(process)
        assert process.wait(FIRST_S) == 0
        near.start()
        far.start()
        assert receive(subscription, 20, into=got) == [b"%d" % n for n in range(20)]


def test_what_departed_clients_left_unsent_is_handed_over(
    new_host: NewHost, port: Port
) -> None:
    near, far = new_host(), new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k|rcv-wnd=4k"
    with penstock.connect(far.directory) as remote:
        subscription = remote.add_subscription(channel, STREAM)
        with penstock.connect(near.directory) as client:
            publication = client.add_publication(channel, STREAM)
            connected(publication, subscription)
            for n in range(200):        # far more than the window: nobody reads
                publication.send(b"%03d" % n * 30, FIRST_S)
        assert near.end() == 0
        assert "unsent bytes of stream 1001" in near.last_errors
        near.start()
        assert receive(subscription, 200) == [b"%03d" % n * 30 for n in range(200)]


def test_a_stop_during_adoption_leaves_everything_to_the_next(new_host: NewHost) -> None:
    host = new_host()
    with stream(host) as (_, publication, subscription):
        session = publication.session_id
        assert publication.send(b"before", FIRST_S) > 0
        host.kill()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            with host.command("daemon", "--dir", str(host.directory)) as early:
                lock = host.directory / "daemon.lock"
                eventually(partial(names, lock, str(early.process.pid)), "claimed")
                early.signal(number)
                assert early.finish() == 0
        host.start()
        assert publication.send(b"after", FIRST_S) > 0
        assert receive(subscription, 2) == [b"before", b"after"]
        assert publication.session_id == session


def test_many_signals_at_once_are_one_stop(new_host: NewHost) -> None:
    host = new_host()
    with stream(host) as (_, publication, subscription):
        assert publication.offer(b"before") > 0
        pid = host.pid
        for _ in range(20):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGINT)
        assert host.wait_end() == 0
        host.start()
        assert publication.send(b"after", FIRST_S) > 0
        assert receive(subscription, 2) == [b"before", b"after"]


def test_groups_and_their_readers_outlive_a_stop(new_host: NewHost) -> None:
    host = new_host()
    with (
        GroupControl(directory=str(host.directory), timeout_s=FIRST_S) as control,
        stream(host) as (_, publication, subscription),
    ):
        group = Group(control, "aeron:ipc", STREAM)
        publication.send(b"one", FIRST_S)
        assert host.end() == 0
        host.start()
        publication.send(b"two", FIRST_S)
        assert receive(subscription, 2) == [b"one", b"two"]
        assert group.log().session_id == publication.session_id
        group.close()


# ---- another layout ------------------------------------------------------------------------------


def other_registry(directory: Path) -> str:
    path = directory / journal.NAME
    head, _, records = path.read_bytes().partition(b"\n")
    path.write_bytes(head + b"0\n" + records)
    return f"registry.journal of format {journal.FORMAT}0, this version has {journal.FORMAT}"


def other_memory(directory: Path) -> str:
    with (directory / "penstock.dat").open("r+b") as file:
        file.seek(8)
        file.write(struct.pack("<I", 77))
    return "penstock.dat of layout 77, this version has"


@pytest.mark.parametrize("change", [other_registry, other_memory])
def test_a_directory_of_another_layout_is_refused_by_name(
    new_host: NewHost, change: Callable[[Path], str]
) -> None:
    host = new_host()
    with stream(host):
        assert host.end() == 0
        expected = change(host.directory)
        before = {path: path.stat().st_mtime_ns for path in host.directory.rglob("*")}
        with host.command("daemon", "--dir", str(host.directory)) as late:
            assert late.finish() == 2
            [text] = late.errors().splitlines()
        assert expected in text
        assert f"penstock drain --discard --dir {host.directory}" in text
        assert before == {path: path.stat().st_mtime_ns for path in host.directory.rglob("*")}
        status, text = host.drain()
        assert status == 2
        assert "--discard" in text
        assert host.drain("--discard")[0] == 0
        assert not host.directory.exists()


# ---- drain ---------------------------------------------------------------------------------------


def test_a_drain_ends_the_streams_and_removes_the_directory(
    new_host: NewHost, port: Port
) -> None:
    """Everything that was accepted arrives, then the end of the stream; clients look for a
    new daemon, which knows nothing of them."""
    near, far = new_host(), new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    ended: list[int] = []
    lost: list[penstock.LostSession] = []
    with two_clients(near, far) as (client, remote):
        subscription = remote.add_subscription(
            channel, STREAM, on_unavailable=lambda image: ended.append(image.position)
        )
        publication = client.add_publication(channel, STREAM, on_session_lost=lost.append)
        connected(publication, subscription)
        for n in range(50):
            publication.send(b"%d" % n, FIRST_S)
        end = publication.position
        assert near.drain() == (0, "")
        assert not near.directory.exists()
        assert receive(subscription, 50) == [b"%d" % n for n in range(50)]
        eventually(lambda: bool(subscription.poll(lambda m, h: None)) or bool(ended), "the end")
        assert ended == [end]
        near.start()
        eventually(lambda: bool(lost), "the publisher hears of it")
        assert lost[0].position == end
        assert publication.send(b"anew", FIRST_S) > 0
        assert receive(subscription, 1) == [b"anew"]


def test_a_drain_keeps_what_it_could_not_send(new_host: NewHost, port: Port) -> None:
    near, far = new_host(), new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k|rcv-wnd=4k"
    with penstock.connect(far.directory) as remote:
        subscription = remote.add_subscription(channel, STREAM)
        with leaver(near, channel, 200) as process:
            say(process)
            assert line(process) == "sent"
            status, text = near.drain("--timeout", "0.2")
            assert status == 1
            assert "unsent bytes of stream 1001" in text
        near.start()
        assert receive(subscription, 200) == [b"%d" % n for n in range(200)]


def test_a_drain_that_discards_says_what(new_host: NewHost, port: Port) -> None:
    near, far = new_host(), new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k|rcv-wnd=4k"
    with (
        penstock.connect(far.directory) as remote,
        remote.add_subscription(channel, STREAM),
        leaver(near, channel, 200) as process,
    ):
        say(process)
        assert line(process) == "sent"
        status, text = near.drain("--timeout", "0.2", "--discard")
        assert status == 0
        assert "discarded: " in text
        assert "unsent bytes of stream 1001" in text
        assert not near.directory.exists()


def test_a_drain_leaves_what_groups_hold(new_host: NewHost) -> None:
    host = new_host()
    with GroupControl(directory=str(host.directory), timeout_s=FIRST_S) as control:
        with stream(host) as (_, publication, _subscription):
            group = Group(control, "aeron:ipc", STREAM)
            publication.send(b"held", FIRST_S)
            status, text = host.drain()
            assert status == 1
            assert "group query of stream 1001" in text
        host.start()
        log = group.log()
        assert b"held" in b"".join(group.fetch(log, 0, log.end_position))


def test_a_daemon_told_so_drains_on_a_signal_and_hands_over_on_a_second(
    new_host: NewHost, port: Port
) -> None:
    host = new_host("--drain")
    with stream(host):
        assert host.end() == 0
        assert not host.directory.exists()
    near, far = new_host("--drain"), new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k|rcv-wnd=4k"
    with penstock.connect(far.directory) as remote:
        subscription = remote.add_subscription(channel, STREAM)
        with leaver(near, channel, 200) as process:
            say(process)
            assert line(process) == "sent"
            os.kill(near.pid, signal.SIGINT)
            eventually(lambda: not (near.directory / "lease.sock").exists(), "it drains")
            assert near.end() == 0
            assert near.directory.exists()
        near.start()
        assert receive(subscription, 200) == [b"%d" % n for n in range(200)]


def test_a_drain_without_a_daemon_says_so(tmp_path: Path, new_host: NewHost) -> None:
    host = new_host()
    missing = PenstockHost(tmp_path / "none")
    status, text = missing.drain()
    assert status == 2
    assert "no daemon is running" in text
    with stream(host):
        host.kill()
        status, text = host.drain()
        assert status == 2
        assert "the last daemon left streams there" in text
        assert host.directory.exists()


def test_clients_that_come_back_to_a_draining_daemon_are_not_let_in(new_host: NewHost) -> None:
    host = new_host()
    with stream(host) as (client, publication, _subscription):
        assert host.drain() == (0, "")
        assert not client.is_daemon_alive
        assert publication.offer(b"x") == Offer.DAEMON_AWAY
        with pytest.raises(penstock.DaemonNotRunning):
            request_status(host.directory, 1.0)
