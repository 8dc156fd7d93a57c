# SPDX-License-Identifier: Apache-2.0
"""Processes that are killed or stopped at the worst moment: the others go on, or report it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from support.actor import by_name, stamped
from support.hosts import PenstockHost
from support.patience import Patience
from support.processes import Peer

import penstock
from loopback.streams import TIMEOUT_S, connected, eventually, log_files, pump, receive
from penstock import Client, Offer, Publication, Subscription

Port = Callable[[], int]
NewHost = Callable[..., PenstockHost]
Remote = Callable[[str], tuple[PenstockHost, Client, str]]
STREAM = 1001

#: Far below the 15 s after which a claim of a live client is given up.
SOON_S = 6.0

QUICK = """\
[publications]
linger_ns = "200ms"
[timeouts]
unblock_timeout_ns = "400ms"
connection_timeout_ns = "1s"
image_liveness_timeout_ns = "1s"
image_linger_ns = "500ms"
idle_heartbeat_interval_ns = "200ms"
reattach_timeout_ns = "500ms"
[log]
level = "warning"
"""


@pytest.fixture
def quick(tmp_path: Path) -> tuple[str, str]:
    """Arguments of a daemon that gives up early."""
    file = tmp_path / "quick.toml"
    file.write_text(QUICK)
    return ("--config", str(file))


@pytest.fixture
def mortal(new_host: NewHost, quick: tuple[str, str]) -> PenstockHost:
    """A daemon of one test that gives up early."""
    return new_host(*quick)


@pytest.fixture(params=["ipc", "udp"])
def route(
    request: pytest.FixtureRequest, client: Client, remote: Client, port: Port
) -> tuple[str, Client]:
    """A channel that ``client`` publishes on, and the client that receives it."""
    if request.param == "ipc":
        return "aeron:ipc?term-length=64k", client
    return f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k", remote


def actor(host: PenstockHost, channel: str, *args: str) -> Peer:
    return host.run(
        "-m", "support.actor", f"--dir={host.directory}", f"--channel={channel}",
        f"--stream={STREAM}", *args,
    )  # fmt: skip


def mortal_client(host: PenstockHost) -> Client:
    """A client that waits for no new daemon of its daemon."""
    return penstock.connect(host.directory, reattach_timeout_s=0)


def do(peer: Peer, words: str, event: str) -> None:
    peer.say(words + "\n")
    peer.wait(event)


def kill(peer: Peer) -> None:
    peer.process.kill()
    peer.process.wait()


def numbered(count: int, first: int = 0, size: int = 100) -> list[bytes]:
    return [stamped("survivor", n, size) for n in range(first, first + count)]


def send_until_refused(
    publication: Publication, sent: list[bytes], errors: list[Exception]
) -> None:
    """Sends for ever; ends with the exception that ends it."""
    try:
        while True:
            message = stamped("survivor", len(sent), 200)
            publication.send(message, TIMEOUT_S, wait_connected=False)
            sent.append(message)
    except penstock.PenstockError as error:
        errors.append(error)


# ---- publishers ----------------------------------------------------------------------------------


def test_a_publisher_killed_in_a_claim_holds_nobody_up(
    client: Client, host: PenstockHost, route: tuple[str, Client]
) -> None:
    channel, receiver = route
    with (
        receiver.add_subscription(channel, STREAM) as subscription,
        client.add_publication(channel, STREAM) as survivor,
        actor(host, channel) as victim,
    ):
        connected(survivor, subscription)
        victim.wait("connected")
        do(victim, "offer 3", "offered")
        for first in range(0, 60, 20):      # three claims, with others' messages between
            do(victim, "claim", "claimed")
            for message in numbered(20, first):
                survivor.send(message, TIMEOUT_S)
        do(victim, "offer 2", "offered")
        assert by_name(receive(subscription, 3)) == {"victim": [0, 1, 2]}
        assert not subscription.wait(0.2), "a message overtook an open claim"
        kill(victim)
        received = by_name(receive(subscription, 62, timeout_s=SOON_S))
        assert received == {"survivor": list(range(60)), "victim": [6, 7]}
        assert by_name(pump(survivor, numbered(2000), [subscription])[0]) == {
            "survivor": list(range(2000))
        }


@pytest.mark.parametrize("size", [40, 5000])
def test_publishers_killed_while_they_offer_leave_whole_messages(
    client: Client, host: PenstockHost, route: tuple[str, Client], size: int
) -> None:
    channel, receiver = route
    received: list[bytes] = []

    def take() -> int:
        return subscription.poll(lambda m, _h: received.append(bytes(m)), 256)

    with (
        receiver.add_subscription(channel, STREAM) as subscription,
        client.add_publication(channel, STREAM) as survivor,
    ):
        connected(survivor, subscription)
        sent = 0
        names = ("first", "second", "third")
        for name in names:
            with actor(host, channel, f"--name={name}", f"--size={size}") as victim:
                victim.wait("connected")
                victim.say("flood\n")
                flood = Patience(TIMEOUT_S)
                start = len(received)
                target = start + (1000 if size < 100 else 200)
                while len(received) < target or name not in by_name(received[start:]):
                    sent += survivor.offer(stamped("survivor", sent, size)) > 0
                    if not take():
                        assert not flood.is_over
                        subscription.wait(0.01)
                kill(victim)
        patience = Patience(SOON_S)
        for _ in range(20):
            while survivor.offer(stamped("survivor", sent, size)) < 0:
                assert take() or not patience.is_over, "the survivor is held up"
            sent += 1
        while by_name(received[-1:]) != {"survivor": [sent - 1]}:
            if not take():
                assert not patience.is_over, "the survivor is held up"
                subscription.wait(0.1)
        numbers = by_name(received)
    assert set(numbers) == {"survivor", *names}
    for name, got in numbers.items():
        assert got == list(range(len(got))), name
    assert len(numbers["survivor"]) == sent


def test_of_an_exclusive_publisher_everything_committed_arrives(
    host: PenstockHost, route: tuple[str, Client]
) -> None:
    channel, receiver = route
    ended: list[int] = []
    with (
        receiver.add_subscription(
            channel, STREAM, on_unavailable=lambda image: ended.append(image.position)
        ) as subscription,
        actor(host, channel, "--exclusive") as victim,
    ):
        victim.wait("connected")
        do(victim, "offer 5", "offered")
        do(victim, "claim", "claimed")
        do(victim, "offer 4", "offered")
        do(victim, "claim", "claimed")
        kill(victim)
        patience = Patience(TIMEOUT_S)
        received: list[bytes] = []
        while not ended:
            assert not patience.is_over, "the image does not end"
            if not subscription.poll(lambda m, _h: received.append(bytes(m))):
                subscription.wait(0.05)
        assert by_name(received) == {"victim": [0, 1, 2, 3, 4, 6, 7, 8, 9]}


def test_a_stopped_claimer_loses_its_claim_but_spoils_nothing(
    mortal: PenstockHost, new_host: NewHost, port: Port
) -> None:
    far = new_host()                # patient: a busy sender may be silent for a second
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with (
        penstock.connect(mortal.directory) as client,
        penstock.connect(far.directory) as remote,
        remote.add_subscription(channel, STREAM) as subscription,
        client.add_publication(channel, STREAM) as survivor,
        actor(mortal, channel) as sleeper,
    ):
        connected(survivor, subscription)
        sleeper.wait("connected")
        do(sleeper, "claim", "claimed")
        sleeper.signal(signal.SIGSTOP)
        sent, received, refused_since = 0, 0, 0.0
        patience = Patience(TIMEOUT_S)
        while not refused_since or time.monotonic() < refused_since + 0.3:
            assert not patience.is_over
            if survivor.offer(numbered(1, sent)[0]) > 0:
                sent, refused_since = sent + 1, 0.0
            elif received == sent > 0 and not refused_since:
                refused_since = time.monotonic()
            got: list[bytes] = []
            if subscription.poll(lambda m, _h, got=got: got.append(bytes(m)), 64):
                assert by_name(got) == {"survivor": list(range(received, received + len(got)))}
                received += len(got)
            else:
                subscription.wait(0.01)
        assert survivor.position <= 3 * 64 * 1024, "the sleeper's memory was used again"
        sleeper.signal(signal.SIGCONT)
        do(sleeper, "commit", "lost")
        more = numbered(3000, sent)
        assert by_name(pump(survivor, more, [subscription])[0]) == {
            "survivor": list(range(sent, sent + 3000))
        }
        do(sleeper, "offer 2", "offered")
        assert by_name(receive(subscription, 2)) == {"victim": [1, 2]}


# ---- subscribers ---------------------------------------------------------------------------------


def test_a_killed_subscriber_does_not_stop_the_others(
    client: Client, host: PenstockHost, peer: PenstockHost, route: tuple[str, Client]
) -> None:
    channel, receiver = route
    home = host if receiver is client else peer
    with (
        receiver.add_subscription(channel, STREAM) as subscription,
        client.add_publication(channel, STREAM) as publication,
        home.sub(
            f"--channel={channel}", f"--stream={STREAM}", "--count=1000000", "--mark=500"
        ) as victim,
    ):
        victim.wait("image")
        connected(publication, subscription)
        messages = numbered(8000)
        first = pump(publication, messages[:2000], [subscription])
        victim.wait("mark")
        victim.signal(signal.SIGSTOP)       # it holds the window now
        accepted = 0
        while (batch := publication.offer_batch(messages[2000 + accepted :])).accepted:
            accepted += batch.accepted
        kill(victim)
        second = receive(subscription, accepted, timeout_s=SOON_S)
        third = pump(publication, messages[2000 + accepted :], [subscription], timeout_s=SOON_S)
        assert first[0] + second + third[0] == messages


def test_the_last_subscriber_killed_leaves_a_publisher_that_knows(
    client: Client, host: PenstockHost, peer: PenstockHost, route: tuple[str, Client]
) -> None:
    channel, receiver = route
    home = host if receiver is client else peer
    with (
        client.add_publication(channel, STREAM) as publication,
        home.sub(f"--channel={channel}", "--count=1000000", "--mark=100") as victim,
    ):
        assert publication.wait_connected(TIMEOUT_S)
        for message in numbered(100):
            publication.send(message, TIMEOUT_S)
        victim.wait("mark")
        kill(victim)
        ended: list[Exception] = []
        send_until_refused(publication, [], ended)
        assert [type(error) for error in ended] == [penstock.NotConnected]
        with receiver.add_subscription(channel, STREAM) as subscription:
            connected(publication, subscription)
            (got,) = pump(publication, [b"welcome"], [subscription])
            while got[-1] != b"welcome":    # what nobody has read comes first
                got += receive(subscription, 1)


# ---- daemons -------------------------------------------------------------------------------------


def test_the_sending_daemon_killed_in_a_transfer(
    mortal: PenstockHost, new_host: NewHost, quick: tuple[str, str], port: Port
) -> None:
    far = new_host(*quick)
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    sent: list[bytes] = []
    errors: list[Exception] = []
    with penstock.connect(far.directory) as remote:
        subscription = remote.add_subscription(channel, STREAM)
        with mortal_client(mortal) as client:
            publication = client.add_publication(channel, STREAM)
            connected(publication, subscription)
            thread = threading.Thread(target=send_until_refused, args=(publication, sent, errors))
            thread.start()
            received = receive(subscription, 2000)
            mortal.kill()
            patience = Patience(SOON_S)
            thread.join(TIMEOUT_S)
            assert [type(error) for error in errors] == [penstock.DaemonGone]
            assert publication.offer(b"x") is Offer.DAEMON_AWAY
            while subscription.images:      # told by the far daemon's liveness time-out
                assert not patience.is_over, "the image does not go"
                if not subscription.poll(lambda m, _h: received.append(bytes(m)), 256):
                    subscription.wait(0.05)
            assert received == sent[: len(received)]
            assert log_files(mortal)
            mortal.start(*quick)
            with (
                mortal_client(mortal) as new_daemon,
                new_daemon.add_publication(channel, STREAM) as again,
            ):
                connected(again, subscription)
                (later,) = pump(again, numbered(500), [subscription])
                while later[-1] != numbered(500)[-1]:   # what was accepted before comes first
                    later += receive(subscription, 1)
                assert later[-500:] == numbered(500)
                rest = later[:-500]
                assert rest == sent[len(sent) - len(rest) :]
        eventually(lambda: not log_files(mortal), "a log of the old life is left")
    mortal.stop()
    assert not mortal.directory.exists()


def test_the_receiving_daemon_killed_in_a_transfer(
    mortal: PenstockHost, new_host: NewHost, quick: tuple[str, str], port: Port
) -> None:
    near = new_host(*quick)
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    sent: list[bytes] = []
    errors: list[Exception] = []
    with penstock.connect(near.directory) as client:
        publication = client.add_publication(channel, STREAM)
        with mortal_client(mortal) as remote:
            subscription = remote.add_subscription(channel, STREAM)
            connected(publication, subscription)
            thread = threading.Thread(target=send_until_refused, args=(publication, sent, errors))
            thread.start()
            received = receive(subscription, 2000)
            mortal.kill()
            with pytest.raises(penstock.DaemonGone):    # what is in the log is handed out first
                receive(subscription, sys.maxsize, into=received)
            thread.join(TIMEOUT_S)
            assert [type(error) for error in errors] == [penstock.NotConnected]
            assert received == sent[: len(received)]
        mortal.start(*quick)
        with (
            mortal_client(mortal) as remote,
            remote.add_subscription(channel, STREAM) as subscription,
        ):
            connected(publication, subscription)
            sent += (more := numbered(500, len(sent), 200))
            (later,) = pump(publication, more, [subscription])
            while later[-1] != sent[-1]:    # what was not sent yet has come first
                later += receive(subscription, 1)
            assert later == sent[-len(later) :]
    mortal.stop()
    assert not mortal.directory.exists()


BLOCKING: dict[str, Callable[[Client, Publication, Subscription], object]] = {
    "send": lambda c, p, s: p.send(b"x", TIMEOUT_S),
    "send_batch": lambda c, p, s: p.send_batch([b"x", b"y"], TIMEOUT_S),
    "publication.wait_connected": lambda c, p, s: p.wait_connected(TIMEOUT_S),
    "wait": lambda c, p, s: s.wait(TIMEOUT_S),
    "subscription.wait_connected": lambda c, p, s: s.wait_connected(TIMEOUT_S),
    "add_publication": lambda c, p, s: c.add_publication("aeron:ipc", 7),
    "add_subscription": lambda c, p, s: c.add_subscription("aeron:ipc", 7),
    "add_counter": lambda c, p, s: c.add_counter("x"),
    "add_destination": lambda c, p, s: p.add_destination("aeron:udp?endpoint=127.0.0.1:9"),
    "status": lambda c, p, s: c.status(),
}


@pytest.fixture
def frozen(mortal: PenstockHost) -> Iterator[PenstockHost]:
    """A daemon that can be stopped by SIGSTOP; it never stays so."""
    yield mortal
    try:
        os.kill(mortal.pid, signal.SIGCONT)
    except (AssertionError, ProcessLookupError):
        return


def test_every_blocking_call_ends_with_a_killed_daemon(frozen: PenstockHost) -> None:
    """The daemon stands still, so that requests are under way when it is killed."""
    ends: dict[str, Exception] = {}
    with mortal_client(frozen) as client:
        publication = client.add_publication("aeron:ipc?term-length=64k", 1)
        subscription = client.add_subscription("aeron:ipc?term-length=64k", 2)

        def call(name: str) -> None:
            try:
                BLOCKING[name](client, publication, subscription)
            except penstock.PenstockError as error:
                ends[name] = error

        os.kill(frozen.pid, signal.SIGSTOP)
        threads = [threading.Thread(target=call, args=(name,)) for name in BLOCKING]
        for thread in threads:
            thread.start()
        frozen.kill()
        for thread in threads:
            thread.join(TIMEOUT_S)
    assert {name: type(error) for name, error in ends.items()} == dict.fromkeys(
        BLOCKING, penstock.DaemonGone
    )
    assert all("connect again" in str(error) for error in ends.values())


async def test_every_awaited_call_ends_with_a_killed_daemon(frozen: PenstockHost) -> None:
    ended = 0

    async def expect_gone(call: Callable[[], object]) -> None:
        nonlocal ended
        with pytest.raises(penstock.DaemonGone):
            await call()                    # type: ignore[misc]
        ended += 1

    with trio.fail_after(SOON_S):
        async with penstock.open_client(frozen.directory, reattach_timeout_s=0) as client:
            publication = await client.add_publication("aeron:ipc?term-length=64k", 1)
            subscription = await client.add_subscription("aeron:ipc?term-length=64k", 2)
            os.kill(frozen.pid, signal.SIGSTOP)
            async with trio.open_nursery() as nursery:
                for call in (
                    lambda: publication.send(b"x"),
                    lambda: publication.wait_connected(),
                    lambda: subscription.wait_connected(),
                    lambda: subscription.recv(),
                    lambda: client.add_publication("aeron:ipc", 7),
                    lambda: client.add_counter("x"),
                ):
                    nursery.start_soon(expect_gone, call)
                await trio.testing.wait_all_tasks_blocked()
                await trio.to_thread.run_sync(frozen.kill)
    assert ended == 6


def test_a_daemon_that_is_drained_says_so_and_leaves_nothing(
    mortal: PenstockHost, new_host: NewHost, quick: tuple[str, str], port: Port
) -> None:
    far = new_host(*quick)
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with (
        penstock.connect(far.directory) as remote,
        remote.add_subscription(channel, STREAM) as subscription,
        mortal.sub("--channel=aeron:ipc", "--count=1000000") as process,
        mortal_client(mortal) as client,
    ):
        publication = client.add_publication(channel, STREAM)
        idle = client.add_subscription("aeron:ipc", 5)
        process.wait("added")
        connected(publication, subscription)
        assert pump(publication, numbered(300), [subscription]) == [numbered(300)]
        stopper = threading.Thread(target=mortal.drain)
        stopper.start()
        with pytest.raises(penstock.DaemonGone, match="connect again"):
            idle.wait(TIMEOUT_S)
        stopper.join(TIMEOUT_S)
        assert not mortal.directory.exists()
        assert publication.offer(b"x") is Offer.DAEMON_AWAY
        assert process.process.poll() is None   # it waits for a new daemon
        eventually(lambda: not subscription.images, "the image does not go", SOON_S)
    assert not mortal.directory.exists()
