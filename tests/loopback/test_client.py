# SPDX-License-Identifier: Apache-2.0
"""The client against real daemons: every kind of channel, and every way to send and receive."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.hosts import PenstockHost
from support.not_run import module, not_run
from support.patience import Patience

import penstock
from loopback.streams import (
    TIMEOUT_S,
    connected,
    eventually,
    log_files,
    messages,
    pump,
    receive,
)
from penstock import Client, Image, Offer

Port = Callable[[], int]
STREAM = 1001


# ---- channels ------------------------------------------------------------------------------------


def test_ipc_delivers_every_message(client: Client) -> None:
    with (
        client.add_subscription("aeron:ipc?term-length=64k", STREAM) as subscription,
        client.add_publication("aeron:ipc?term-length=64k", STREAM) as publication,
    ):
        connected(publication, subscription)
        sent = messages(5000)
        assert pump(publication, sent, [subscription]) == [sent]
        assert subscription.images[0].source_identity == "aeron:ipc"


def test_ipc_with_many_subscribers_and_a_shared_publication(client: Client) -> None:
    subscriptions = [client.add_subscription("aeron:ipc", 2) for _ in range(3)]
    first = client.add_publication("aeron:ipc", 2)
    second = client.add_publication("aeron:ipc", 2)
    assert first.session_id == second.session_id
    connected(first, *subscriptions)
    sent = messages(500)
    assert pump(first, sent, subscriptions) == [sent] * 3
    assert pump(second, sent, subscriptions) == [sent] * 3
    assert first.position == second.position
    for resource in (first, second, *subscriptions):
        resource.close()


def test_unicast_continues_over_many_terms(client: Client, remote: Client, port: Port) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with (
        remote.add_subscription(channel, STREAM) as subscription,
        client.add_publication(channel, STREAM) as publication,
    ):
        connected(publication, subscription)
        sent = messages(10_000, 200)
        assert pump(publication, sent, [subscription]) == [sent]
        assert publication.position > 10 * 64 * 1024
        assert subscription.images[0].session_id == publication.session_id


def test_unicast_ipv6_with_a_port_that_the_daemon_chooses(client: Client, remote: Client) -> None:
    if not Path("/proc/net/if_inet6").exists():
        not_run("the kernel has no IPv6")
    with remote.add_subscription("aeron:udp?endpoint=[::1]:0", STREAM) as subscription:
        (address,) = subscription.local_addresses
        assert not address.endswith(":0")
        with client.add_publication(f"aeron:udp?endpoint={address}", STREAM) as publication:
            connected(publication, subscription)
            assert pump(publication, [b"six"], [subscription]) == [[b"six"]]


def test_multicast_reaches_near_and_far(client: Client, remote: Client, port: Port) -> None:
    channel = f"aeron:udp?endpoint=224.20.30.39:{port()}|interface=127.0.0.1|term-length=64k"
    with (
        remote.add_subscription(channel, STREAM) as far,
        client.add_subscription(channel, STREAM) as near,
        client.add_publication(channel, STREAM) as publication,
    ):
        connected(publication, far, near)
        sent = messages(3000)
        assert pump(publication, sent, [far, near]) == [sent, sent]


def test_spies_see_what_is_sent(client: Client, remote: Client, port: Port) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with (
        remote.add_subscription(channel, STREAM) as subscription,
        client.add_publication(channel, STREAM) as publication,
        client.add_subscription(f"aeron-spy:{channel}", STREAM) as spy,
    ):
        connected(publication, subscription, spy)
        sent = messages(2000)
        assert pump(publication, sent, [subscription, spy]) == [sent, sent]


def test_multi_destination_cast_with_dynamic_control(
    client: Client, remote: Client, port: Port
) -> None:
    control = f"control=127.0.0.1:{port()}|control-mode=dynamic|term-length=64k"
    with (
        client.add_publication(f"aeron:udp?{control}", STREAM) as publication,
        remote.add_subscription(
            f"aeron:udp?endpoint=127.0.0.1:{port()}|{control}", STREAM
        ) as one,
        remote.add_subscription(
            f"aeron:udp?endpoint=127.0.0.1:{port()}|{control}", STREAM
        ) as two,
    ):
        connected(publication, one, two)
        sent = messages(1000)
        assert pump(publication, sent, [one, two]) == [sent, sent]


def test_multi_destination_cast_with_manual_control(
    client: Client, remote: Client, port: Port
) -> None:
    endpoints = [f"aeron:udp?endpoint=127.0.0.1:{port()}" for _ in range(2)]
    with (
        client.add_publication("aeron:udp?control-mode=manual", STREAM) as publication,
        remote.add_subscription(endpoints[0], STREAM) as one,
        remote.add_subscription(endpoints[1], STREAM) as two,
    ):
        publication.add_destination(endpoints[0])
        connected(publication, one)
        assert pump(publication, [b"to one"], [one]) == [[b"to one"]]
        destination = publication.add_destination(endpoints[1])
        assert two.wait_connected(TIMEOUT_S)
        sent = messages(200)
        assert pump(publication, sent, [one, two]) == [sent, sent]
        publication.remove_destination(endpoints[0])
        publication.remove_destination(destination)


def test_a_subscription_with_several_destinations(
    client: Client, remote: Client, port: Port
) -> None:
    endpoints = [f"aeron:udp?endpoint=127.0.0.1:{port()}" for _ in range(2)]
    with remote.add_subscription("aeron:udp?control-mode=manual", STREAM) as subscription:
        for endpoint in endpoints:
            subscription.add_destination(endpoint)
        for index, endpoint in enumerate(endpoints):
            with client.add_exclusive_publication(endpoint, STREAM) as publication:
                assert publication.wait_connected(TIMEOUT_S)
                publication.send(b"over %d" % index, TIMEOUT_S)
                assert receive(subscription, 1) == [b"over %d" % index]
        subscription.remove_destination(endpoints[0])


def test_loss_is_repaired(new_host: Callable[..., PenstockHost], port: Port) -> None:
    one = new_host("--impair", "loss=5%,seed=3")
    two = new_host("--impair", "recv-loss=2%,seed=4")
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=256k"
    with (
        penstock.connect(one.directory) as sender,
        penstock.connect(two.directory) as receiver,
        receiver.add_subscription(channel, STREAM) as subscription,
        sender.add_publication(channel, STREAM) as publication,
    ):
        connected(publication, subscription)
        sent = messages(10_000, 500)
        assert pump(publication, sent, [subscription]) == [sent]


# ---- ways to send and receive --------------------------------------------------------------------


def test_messages_of_many_fragments_arrive_whole(
    client: Client, remote: Client, port: Port
) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=4m"
    with (
        remote.add_subscription(channel, STREAM) as subscription,
        client.add_exclusive_publication(channel, STREAM) as publication,
    ):
        connected(publication, subscription)
        longest = publication.max_message_length
        sent = [os.urandom(size) for size in (1, 1376, 1377, 100_000, longest)] * 3
        assert pump(publication, sent, [subscription]) == [sent]
        with pytest.raises(penstock.MessageTooLong, match=str(longest)):
            publication.offer(bytes(longest + 1))


def test_claims_are_committed_and_aborted(client: Client, remote: Client, port: Port) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}"
    with (
        remote.add_subscription(channel, STREAM) as subscription,
        client.add_publication(channel, STREAM) as publication,
    ):
        connected(publication, subscription)
        with publication.try_claim(5) as claim:
            claim.buffer[:] = b"first"
        aborted = publication.try_claim(5)
        aborted.abort()
        with publication.try_claim(6) as claim:
            claim.buffer[:] = b"second"
        assert receive(subscription, 2) == [b"first", b"second"]


def test_batches_carry_rows_and_columns(client: Client, remote: Client, port: Port) -> None:
    np = module("numpy")
    module("pyarrow")
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    rows = np.arange(3000 * 8, dtype=np.uint8).reshape(3000, 8)
    with (
        remote.add_subscription(channel, STREAM) as subscription,
        client.add_publication(channel, STREAM) as publication,
    ):
        connected(publication, subscription)
        sender = threading.Thread(target=publication.send_batch, args=(rows, TIMEOUT_S))
        sender.start()
        received: list[bytes] = []
        positions: list[int] = []
        while len(received) < len(rows):
            assert subscription.wait(TIMEOUT_S)
            with subscription.poll_batch(500) as batch:
                table = batch.to_arrow()
                received.extend(table.column("payload").to_pylist())
                positions.extend(batch.positions.tolist())
        sender.join()
        assert received == [row.tobytes() for row in rows]
        assert positions == sorted(set(positions))
        assert positions[-1] == publication.position


def test_a_raising_handler_loses_nothing(client: Client) -> None:
    with (
        client.add_subscription("aeron:ipc", 7) as subscription,
        client.add_publication("aeron:ipc", 7) as publication,
    ):
        connected(publication, subscription)
        sent = messages(100)
        for message in sent:
            publication.send(message, TIMEOUT_S)
        received: list[bytes] = []
        failing = True

        def handler(message: memoryview, _header: penstock.Header) -> None:
            nonlocal failing
            failing = not failing
            if failing:
                raise RuntimeError
            received.append(bytes(message))

        while len(received) < len(sent):
            try:
                subscription.poll(handler)
            except RuntimeError:
                continue
        assert received == sent


def test_a_slow_subscriber_presses_back_and_nothing_is_lost(
    client: Client, remote: Client, port: Port
) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with (
        remote.add_subscription(channel, STREAM) as subscription,
        client.add_publication(channel, STREAM) as publication,
    ):
        connected(publication, subscription)
        accepted = 0
        result = 0
        refusal = ""
        while not refusal:
            try:
                result = publication.send(b"%d" % accepted, 0.3)
                accepted += 1
            except penstock.TimeoutExpired as error:
                refusal = str(error)
        assert "BACK_PRESSURED" in refusal
        assert publication.offer(b"x") is Offer.BACK_PRESSURED
        assert result <= 128 * 1024
        assert receive(subscription, accepted) == [b"%d" % n for n in range(accepted)]
        assert publication.send(b"again", TIMEOUT_S) > result


# ---- what is told --------------------------------------------------------------------------------


def test_images_come_and_go(client: Client, remote: Client, port: Port) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}"
    heard: list[tuple[str, int]] = []
    ended: list[int] = []

    def gone(image: Image) -> None:
        heard.append(("-", image.session_id))
        ended.append(image.position)

    with remote.add_subscription(
        channel,
        STREAM,
        on_available=lambda image: heard.append(("+", image.session_id)),
        on_unavailable=gone,
    ) as subscription:
        sessions = []
        for _ in range(2):
            with client.add_exclusive_publication(channel, STREAM) as publication:
                connected(publication, subscription)
                sessions.append(publication.session_id)
                position = publication.send(b"x", TIMEOUT_S)
                assert receive(subscription, 1) == [b"x"]
            eventually(lambda: not subscription.images, "the image did not go")
            assert ended.pop() == position
    assert heard == [(sign, session) for session in sessions for sign in "+-"]


def test_counters_are_shared(client: Client, host: PenstockHost) -> None:
    with (
        client.add_counter("requests", value=3) as counter,
        penstock.connect(host.directory) as other,
    ):
        counter.increment()
        assert other.counters[counter.id] == 4


def test_status_and_log_files_follow_the_streams(host: PenstockHost) -> None:
    before = log_files(host)
    with (
        penstock.connect(host.directory, name="counted") as client,
        client.add_publication("aeron:ipc", 99),
        client.add_subscription("aeron:ipc", 99),
    ):
        assert len(log_files(host) - before) == 1
        clients = client.status()["clients"]
        assert any(entry["name"] == "counted" for entry in clients)
    eventually(lambda: log_files(host) <= before, "a log file is left")


@pytest.mark.parametrize(
    ("channel", "code"),
    [
        ("aeron:udp?endpoint=localhost", "invalid_channel"),
        ("aeron:udp?endpoint=127.0.0.1:7|nonsense=1", "invalid_channel"),
        ("aeron:ipc?term-length=100000", "invalid_channel"),
        ("nonsense", "invalid_channel"),
        ("aeron:udp?endpoint=no-such-host.invalid:40456", "unknown_host"),
        ("aeron:udp?endpoint=224.20.30.41:40456|interface=203.0.113.9", "no_interface"),
    ],
)
def test_refusals_say_why(client: Client, channel: str, code: str) -> None:
    with pytest.raises(penstock.ChannelRefused) as caught:
        client.add_publication(channel, STREAM)
    assert caught.value.code == code
    assert len(str(caught.value)) > 10


def test_a_port_in_use_is_refused(client: Client, remote: Client, port: Port) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}"
    with (
        remote.add_subscription(channel, STREAM),
        pytest.raises(penstock.ChannelRefused) as caught,
    ):
        client.add_subscription(channel, STREAM)
    assert caught.value.code == "address_in_use"


@pytest.mark.parametrize("how", ["ipc", "udp", "spy"])
def test_a_publisher_that_closes_at_once_loses_nothing(
    client: Client, remote: Client, port: Port, how: str
) -> None:
    channel = (
        "aeron:ipc" if how == "ipc" else f"aeron:udp?endpoint=127.0.0.1:{port()}"
    )
    receiver = remote if how == "udp" else client
    listening = f"aeron-spy:{channel}" if how == "spy" else channel
    sent = messages(500)
    with contextlib.ExitStack() as stack:
        if how == "spy":  # a spy alone is no receiver
            stack.enter_context(remote.add_subscription(channel, 31))
        subscription = stack.enter_context(receiver.add_subscription(listening, 31))
        with client.add_exclusive_publication(channel, 31) as publication:
            connected(publication, subscription)
            publication.send_batch(sent, TIMEOUT_S)
        received: list[bytes] = []
        patience = Patience(TIMEOUT_S)
        while subscription.images:
            assert not patience.is_over, "the image did not end"
            if not subscription.poll(lambda m, _h: received.append(bytes(m)), 7):
                subscription.wait(0.1)
        assert received == sent


# ---- death ---------------------------------------------------------------------------------------


def test_a_killed_daemon_ends_every_wait(new_host: Callable[..., PenstockHost]) -> None:
    mortal = new_host()
    with penstock.connect(mortal.directory, reattach_timeout_s=0.5) as client:
        publication = client.add_publication("aeron:ipc", 1)
        subscription = client.add_subscription("aeron:ipc", 2)
        ends: list[str] = []

        def expect(wait: Callable[[], object]) -> None:
            try:
                wait()
            except penstock.DaemonGone as error:
                ends.append(str(error))

        threads = [
            threading.Thread(target=expect, args=(wait,))
            for wait in (
                lambda: publication.send(b"x", TIMEOUT_S),
                lambda: subscription.wait(TIMEOUT_S),
                lambda: subscription.wait_connected(TIMEOUT_S),
            )
        ]
        for thread in threads:
            thread.start()
        mortal.kill()
        for thread in threads:
            thread.join(TIMEOUT_S)
        assert len(ends) == 3
        assert publication.offer(b"x") is Offer.DAEMON_AWAY
        assert not client.is_daemon_alive
        why = r"no daemon took this client back within 0\.5 s; last try: no daemon is running in"
        with pytest.raises(penstock.DaemonGone, match=why):
            client.add_counter("x")
    with pytest.raises(penstock.DaemonNotRunning):
        penstock.connect(mortal.directory, timeout_s=0.1)


def test_a_stopped_daemon_ends_every_wait(new_host: Callable[..., PenstockHost]) -> None:
    mortal = new_host()
    with penstock.connect(mortal.directory, reattach_timeout_s=0.5) as client:
        subscription = client.add_subscription("aeron:ipc", 2)
        stopper = threading.Thread(target=mortal.stop)
        stopper.start()
        with pytest.raises(penstock.DaemonGone):
            subscription.wait(TIMEOUT_S)
        stopper.join()


def test_a_thread_that_closes_while_an_image_ends_ends_the_wait(client: Client) -> None:
    """The thread that waits finds the image, another one closes, the first one ends the image."""
    closed: list[int] = []

    class Closing(dict[int, object]):
        def __setitem__(self, session_id: int, left: object) -> None:
            closer = threading.Thread(target=subscription.close)
            closer.start()
            closer.join()
            closed.append(session_id)
            super().__setitem__(session_id, left)

    with client.add_subscription("aeron:ipc", 9) as subscription:
        with client.add_publication("aeron:ipc", 9) as publication:
            connected(publication, subscription)
            assert subscription.images
            subscription._left = Closing()
        with pytest.raises(penstock.ClosedError):
            eventually(lambda: subscription.wait(0.1), "a closed subscription waits")
        assert closed == [publication.session_id]


def test_a_killed_client_is_forgotten(host: PenstockHost) -> None:
    before = log_files(host)
    with host.pub("--channel=aeron:ipc", "--stream=77", "--count=1") as victim:
        assert victim.next()["event"] == "added"
        assert len(log_files(host) - before) == 1       # one of before may be gone by now
        victim.process.kill()
        eventually(lambda: log_files(host) <= before, "a dead client's log file is left")


def test_a_forked_child_is_refused_and_the_parent_goes_on(client: Client) -> None:
    with (
        client.add_subscription("aeron:ipc", 8) as subscription,
        client.add_publication("aeron:ipc", 8) as publication,
    ):
        connected(publication, subscription)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                publication.offer(b"from the child")
            except penstock.ForkedError:
                status = 0
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        publication.send(b"from the parent", TIMEOUT_S)
        assert receive(subscription, 1) == [b"from the parent"]
