# SPDX-License-Identifier: Apache-2.0
"""Flow control between real daemons: strategies by URI, rates, and the reported culprit."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from support.patience import Patience

import penstock
from loopback.conftest import NewHost
from loopback.streams import TIMEOUT_S, connected, eventually, messages, pump
from penstock import Client, Offer
from penstock.core.errors import ChannelRefused

Port = Callable[[], int]


def _fill(publication: penstock.Publication, limit_s: float = 5.0) -> int:
    """Offers until refused for good; returns the refusal."""
    whole, refused = Patience(limit_s), None
    code = 0
    while not whole.is_over and (refused is None or not refused.is_over):
        code = publication.offer(b"x" * 1000)
        if code > 0:
            refused = None
        elif refused is None:
            refused = Patience(0.5, exact=True)
    return code


def test_a_group_below_its_least_size_takes_nothing_and_says_how_many_are_there(
    client: Client, remote: Client, port: Port
) -> None:
    """As Aeron: not connected is not connected, at every place where one can look."""
    control = port()
    channel = f"aeron:udp?control=127.0.0.1:{control}|control-mode=dynamic|fc=min,g:/2"

    def subscribe(at: Client) -> penstock.Subscription:
        return at.add_subscription(
            f"aeron:udp?endpoint=127.0.0.1:{port()}|control=127.0.0.1:{control}"
            "|control-mode=dynamic", 7,
        )

    with client.add_publication(f"{channel}|term-length=64k", 7) as publication, \
            subscribe(remote) as first:
        assert first.wait_connected(10.0)
        eventually(lambda: publication.receivers == 1, "the receiver is known")
        assert not publication.is_connected
        assert publication.offer(b"x") == Offer.NOT_CONNECTED
        assert publication.position == 0
        eventually(lambda: publication.pressure().cause == "no_receiver", "the cause is stated")
        there = r"fc=min,g:/2 requires 2 receivers, and 1 is connected \(a receiver is a daemon"
        with pytest.raises(penstock.TimeoutExpired, match=there):
            publication.send(b"x", timeout_s=0.01)
        with pytest.raises(penstock.NotConnected, match=there):
            publication.send(b"x", wait_connected=False)
        assert not publication.wait_connected(0.01)
        with subscribe(client) as second:
            assert publication.wait_connected(10.0, receivers=2)
            sent = messages(100)
            assert pump(publication, sent, [first, second]) == [sent, sent]


def test_wait_connected_waits_for_the_stated_number(
    client: Client, remote: Client, port: Port
) -> None:
    """On IPC subscriptions count; on UDP daemons do, however many subscriptions they have."""
    group = f"aeron:udp?endpoint=239.20.0.9:{port()}|interface=127.0.0.1"
    for channel, there in ((group, 1), ("aeron:ipc", 2)):
        with client.add_publication(channel, 7) as publication:
            assert publication.receivers == 0
            assert not publication.wait_connected(0.01, receivers=2)
            with client.add_subscription(channel, 7) as one, \
                    client.add_subscription(channel, 7) as two:
                connected(publication, one, two)
                assert publication.wait_connected(10.0, receivers=there)
                assert publication.receivers == there
                assert not publication.wait_connected(0.01, receivers=there + 1)
                with pytest.raises(penstock.InvalidArgument, match="receivers=0"):
                    publication.wait_connected(0.01, receivers=0)


@pytest.mark.parametrize("fc", ["min", "tagged,g:5", "preferred", "nak", "max",
                                "py:demo.half_window:HalfWindow"])
def test_streams_flow_under_every_strategy(
    client: Client, remote: Client, port: Port, fc: str
) -> None:
    control = port()
    channel = f"aeron:udp?control=127.0.0.1:{control}|control-mode=dynamic|term-length=256k|fc={fc}"
    sub_channel = (
        f"aeron:udp?endpoint=127.0.0.1:0|control=127.0.0.1:{control}|control-mode=dynamic|gtag=5"
    )
    with (
        client.add_publication(channel, 7) as publication,
        remote.add_subscription(sub_channel, 7) as first,
        remote.add_subscription(sub_channel.replace("127.0.0.1:0", f"127.0.0.1:{port()}"), 7)
        as second,
    ):
        connected(publication, first, second)
        sent = messages(3000)
        assert pump(publication, sent, [first, second]) == [sent, sent]
        pressure = publication.pressure()
        assert pressure.strategy == fc.split(",", maxsplit=1)[0]
        assert sum(pressure.blocked_ns.values()) == sum(pressure.blocked_by_ns.values())


def test_a_rate_is_kept_and_named(client: Client, remote: Client, port: Port) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with (
        remote.add_subscription(channel, 8) as subscription,
        client.add_publication(channel + "|ps-rate=100k", 8) as publication,
    ):
        connected(publication, subscription)
        start = publication.position
        codes = set()
        began, patience = time.monotonic(), Patience(60.0, exact=True)
        while publication.position - start < 200 * 1024:
            assert not patience.is_over, "two seconds' worth does not pass"
            code = publication.offer(b"x" * 968)
            if code < 0:
                codes.add(code)
                time.sleep(0.001)
            subscription.poll(lambda message, header: None, limit=100)
        offered, spent = publication.position - start, time.monotonic() - began
        # Other programs may make it slower by the clock, but not in the time that was left to it.
        # The log's window is ahead of what was sent.
        assert offered / spent < 130 * 1024
        assert offered / patience.spent_s > 90 * 1024
        assert Offer.RATE_LIMITED in codes
        pressure = publication.pressure()
        assert pressure.blocked_ns["rate_limit"] > 10**9
        assert pressure.rate_bytes_per_s == 100 * 1024


@pytest.mark.parametrize(("window", "room"), [("", 65536), ("|pub-wnd=16k", 16384)])
def test_an_ipc_publisher_is_a_window_ahead_of_its_slowest_reader(
    client: Client, window: str, room: int
) -> None:
    """A window of a term unless less is configured; term after term, nothing is overwritten."""
    channel = f"aeron:ipc?term-length=64k{window}"
    with (
        client.add_subscription("aeron:ipc", 21) as fast,
        client.add_subscription("aeron:ipc", 21) as slow,
        client.add_publication(channel, 21) as publication,
    ):
        connected(publication, fast, slow)
        sent: list[bytes] = []
        got: list[list[bytes]] = [[], []]

        def refused_behind(position: int) -> bool:
            while True:
                message = b"%d:" % len(sent) + bytes(n % 251 for n in range(len(sent) % 1200))
                refused = publication.offer(message) < 0
                if not refused:
                    sent.append(message)
                fast.poll(lambda m, _h: got[0].append(bytes(m)), limit=100)
                if refused:
                    return publication.position >= position

        while len(sent) < 1500:
            start = publication.position

            eventually(partial(refused_behind, start + room - 64), "the window is not used")
            assert publication.position - start <= room + 1280  # the last begins inside the window
            while len(got[1]) < len(sent):
                slow.poll(lambda m, _h: got[1].append(bytes(m)), limit=7)
        assert got == [sent, sent]


def test_the_far_application_is_named(client: Client, remote: Client, port: Port) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with (
        remote.add_subscription(channel, 9) as subscription,
        client.add_publication(channel, 9) as publication,
    ):
        connected(publication, subscription)
        assert _fill(publication) == Offer.BACK_PRESSURED
        eventually(lambda: publication.pressure().reason == "slow_subscriber", "the reason")
        pressure = publication.pressure()
        assert pressure.cause == "receiver_window"
        assert pressure.culprit.startswith("receiver ")
        assert "127.0.0.1" in pressure.culprit
        assert pressure.reason_client == remote.client_id
        assert pressure.backlog_bytes > 0
        assert pressure.total_ns > 4 * 10**8
        assert sum(pressure.blocked_by_ns.values()) == pressure.total_ns


@pytest.mark.parametrize(("name", "answers"), [("Loops", 3), ("Sleeps", 0)])
def test_a_strategy_that_never_returns_is_contained(
    new_host: NewHost, port: Port, name: str, answers: int
) -> None:
    """The built-in applies, the daemon serves others, and it ends in good order.  On a busy machine
    an answer may be late too, and then counts as a failure; else there is exactly one."""
    host = new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with (
        penstock.connect(host.directory) as client,
        client.add_subscription(channel, 12) as subscription,
        client.add_publication(f"{channel}|fc=py:support.strategies:{name}", 12) as publication,
    ):
        connected(publication, subscription)

        def failures() -> int:
            found = client.status()["publications"]
            return int(next(row["strategy_failures"] for row in found))

        patience = Patience(TIMEOUT_S, exact=True)
        eventually(lambda: failures() >= 1, "it was not missed")
        is_busy = patience.is_busy
        sent = messages(2000)                       # more than a term: the window moves
        assert pump(publication, sent, [subscription]) == [sent]
        with client.add_publication("aeron:ipc?term-length=64k", 13) as other:
            assert other.session_id
        with penstock.connect(host.directory) as second:
            assert second.status()["publications"]
        counted = failures()                        # once a question
        assert counted <= (answers + 1 if is_busy else 1)
        stat = host.command("stat", "--once", "--json", f"--dir={host.directory}")
        errors = json.loads(stat.output())["errors"]
        late = [e["count"] for e in errors if "no answer within" in e["text"]]
        assert late == [1]                          # the first one only
    assert host.end() == 0


def test_a_strategy_that_cannot_be_made_in_time_is_refused_and_holds_up_nobody(
    new_host: NewHost, port: Port
) -> None:
    host = new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with (
        penstock.connect(host.directory) as client,
        penstock.connect(host.directory) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(
            client.add_publication, f"{channel}|fc=py:support.strategies:NeverMade", 12
        )
        with other.add_publication(channel, 14) as publication:
            assert publication.session_id
            assert not waiting.done()
        with pytest.raises(ChannelRefused, match="NeverMade: not made within 5 s"):
            waiting.result(30)
    assert host.end() == 0


@pytest.mark.parametrize(("channel", "word"), [
    ("aeron:udp?endpoint=127.0.0.1:4444|fc=min", "unicast"),
    ("aeron:udp?control=127.0.0.1:4444|control-mode=dynamic|fc=fastest", "no such flow control"),
    ("aeron:udp?endpoint=127.0.0.1:4444|fc=py:nowhere:X", "cannot be loaded"),
    ("aeron:ipc?fc=min", "aeron:ipc"),
    ("aeron:ipc?ps-rate=10x", "ps-rate"),
])
def test_contradictions_are_refused_at_add(client: Client, channel: str, word: str) -> None:
    with pytest.raises(ChannelRefused, match=word):
        client.add_publication(channel, 10)
