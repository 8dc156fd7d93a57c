# SPDX-License-Identifier: Apache-2.0
"""Credits between real daemons: what a publisher may send, pools, and withhold."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from support.hosts import PenstockHost
from support.patience import Patience

import penstock
from loopback.conftest import NewHost
from loopback.credit_pairs import MEDIA, STREAM, Pair, offered, opened
from loopback.streams import TIMEOUT_S, connected, eventually
from penstock import Credits, Offer, Publication, Subscription
from penstock.client._inspect import request_status
from penstock.daemon.observe.flows import flows

Port = Callable[[], int]


Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def cli() -> Cli:
    def run(*argv: str, directory: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "penstock", *argv, "--dir", str(directory)],
            capture_output=True, text=True, check=False, timeout=120,
        )

    return run


@pytest.fixture(params=MEDIA)
def pair(
    request: pytest.FixtureRequest, host: PenstockHost, peer: PenstockHost, port: Port
) -> Iterator[Pair]:
    with opened(request.param, host, peer, port) as made:
        yield made


@pytest.mark.parametrize("exclusive", [False, True], ids=["shared", "exclusive"])
def test_five_credits_are_five_in_flight_and_no_more(pair: Pair, exclusive: bool) -> None:
    publication, subscription = pair.open(5, exclusive=exclusive)
    assert offered(publication, 100) == 5
    assert offered(publication, 100) == 0
    got: list[bytes] = []
    eventually(lambda: subscription.poll(lambda m, _h: got.append(bytes(m)), 1) == 1, "no credit")
    eventually(lambda: publication.offer(b"x") > 0, "no credit")
    assert publication.offer(b"y") == Offer.NO_CREDIT
    spent = publication.credits
    assert (spent.granted, spent.spent) == (6, 6)
    while len(got) < 6:
        subscription.wait(10)
        subscription.poll(lambda m, _h: got.append(bytes(m)))
    assert got == [b"0", b"1", b"2", b"3", b"4", b"x"]


def test_one_credit_is_serial(pair: Pair) -> None:
    publication, subscription = pair.open(1)
    for number in range(20):
        publication.send(b"%d" % number, 10)
        assert publication.offer(b"no") == Offer.NO_CREDIT
        assert subscription.recv(10) == b"%d" % number


# ---- without credit --------------------------------------------------------------------------


def test_without_credit_the_publisher_waits_drops_or_routes(pair: Pair) -> None:
    publication, subscription = pair.open(2)
    assert offered(publication, 100) == 2
    with pytest.raises(penstock.TimeoutExpired, match="NO_CREDIT"):
        publication.send(b"late", 0.05)
    assert publication.send(b"dropped", on_no_credit="drop") == Offer.NO_CREDIT
    spare_sub = pair.sender.add_subscription("aeron:ipc?term-length=64k", STREAM + 1)
    spare = pair.sender.add_publication("aeron:ipc?term-length=64k", STREAM + 1)
    assert publication.send(b"elsewhere", on_no_credit=penstock.route(spare)) > 0
    assert spare_sub.recv(10) == b"elsewhere"
    seen = publication.credits
    assert (seen.dropped, seen.routed, seen.available) == (1, 1, 0)
    with pytest.raises(penstock.InvalidArgument, match="on_no_credit is"):
        publication.send(b"x", on_no_credit="spill")    # type: ignore[arg-type]
    assert subscription.recv(10) == b"0"
    assert publication.send(b"now", 10, on_no_credit="drop") >= Offer.NO_CREDIT


def test_a_credit_source_that_left_is_no_connection(pair: Pair) -> None:
    publication, subscription = pair.open(2)
    assert offered(publication, 100) == 2
    subscription.close()
    eventually(lambda: publication.offer(b"x") == Offer.NOT_CONNECTED, "still connected")
    with pytest.raises(penstock.NotConnected, match="granted it credits have left"):
        publication.send(b"x", wait_connected=False)
    assert not publication.credits.is_granted


def test_pressure_names_credit_as_the_cause(pair: Pair) -> None:
    publication, _subscription = pair.open(2)
    assert offered(publication, 100) == 2
    eventually(lambda: publication.pressure().cause == "credit", "another cause")
    assert publication.offer(b"x") == Offer.NO_CREDIT
    assert publication.pressure().refused["credit"] > 0


# ---- what is shown -----------------------------------------------------------------------------


def named(publication: Publication, client: str) -> None:
    """Wait until the account of time held names a client as the one with the credit."""
    patience = Patience(TIMEOUT_S)
    while True:
        assert publication.offer(b"no") < 0
        pressure = publication.pressure()
        if pressure.cause == "credit" and client in pressure.culprit:
            return
        assert not patience.is_over, pressure.summary
        time.sleep(0.01)


def test_the_reader_that_returns_no_credit_is_named(pair: Pair) -> None:
    publication, subscription = pair.open(Credits(2, handles=True))
    assert offered(publication, 100) == 2
    kept = [subscription.recv(10), subscription.recv(10)]
    assert len(kept) == 2
    named(publication, "'receiver'")


def test_the_reader_that_withholds_is_named(pair: Pair) -> None:
    publication, subscription = pair.open(5)
    subscription.withhold(30)
    named(publication, "'receiver'")


@pytest.mark.parametrize("exclusive", [False, True], ids=["shared", "exclusive"])
def test_the_owner_of_an_open_claim_is_named(pair: Pair, exclusive: bool) -> None:
    publication, subscription = pair.open(1, exclusive=exclusive)
    publication.send(b"before", 10)
    assert subscription.recv(10) == b"before"
    subscription.poll(lambda _m, _h: None)
    claims = []

    def claimed() -> bool:
        claims.append(publication.try_claim(10))
        return bool(claims[-1])

    eventually(claimed, "no credit came back")
    named(publication, "'sender'")
    claims[-1].abort()


def test_status_and_flows_show_credits(pair: Pair) -> None:
    publication, subscription = pair.open(Credits(4, handles=True))
    assert offered(publication, 100) == 4
    lost = subscription.recv(10)
    kept = subscription.recv(10)
    del lost
    gc.collect()
    with pytest.warns(ResourceWarning, match="leaked"):
        subscription.poll(lambda _m, _h: None)

    def shown(client: penstock.Client, table: str) -> dict[str, Any]:
        (row,) = [r for r in request_status(client.directory, 10)[table]
                  if r.get("session_id", publication.session_id) == publication.session_id]
        return dict(row)

    def complete() -> bool:
        subscription.poll(lambda _m, _h: None)
        reader = shown(pair.receiver, "subscriptions")
        names = ("granted", "returned", "outstanding", "leaked")
        return [reader[f"credits_{name}"] for name in names] == [6, 2, 4, 1]

    eventually(complete, "the reader's credits are not shown")
    reader = shown(pair.receiver, "subscriptions")
    assert (reader["credits"], reader["withheld"], reader["credit_policy"]) == (4, False, "")

    def sent() -> bool:
        (stream,) = [s for s in flows(request_status(pair.sender.directory, 10))["streams"]
                     if s["session_id"] == publication.session_id]
        return (stream["credits_granted"], stream["credits_spent"]) == (6, 4)

    eventually(sent, "the sender's credits are not shown")
    kept.credit.release()
    eventually(lambda: shown(pair.sender, "publications")["credits_granted"] == 7, "no credit")


# ---- pools -----------------------------------------------------------------------------------


def test_a_pool_is_divided_among_publishers(pair: Pair) -> None:
    """Two publishers share 8 credits; an idle one gives them up, and gets them back."""
    first, subscription = pair.open(Credits(8, policy="round_robin"), exclusive=True)
    second = pair.sender.add_exclusive_publication(pair.channel, STREAM)

    def both() -> bool:
        sent = offered(first, 100), offered(second, 100)
        assert sum(sent) <= 8
        subscription.poll(lambda _m, _h: None)
        return sent == (4, 4)

    def alone() -> bool:
        sent = offered(first, 100)
        assert sent <= 8
        subscription.poll(lambda _m, _h: None)
        return sent == 7

    connected(second, subscription)
    eventually(lambda: second.credits.is_granted, "no grant arrived")
    eventually(both, "the credits are not divided")
    eventually(alone, "an idle publisher keeps its credits")
    eventually(both, "a publisher that was idle does not get its credits back")


def test_the_streams_of_a_client_share_a_pool(new_host: NewHost, port: Port) -> None:
    """A stream over UDP and one over IPC: never more than the pool is in flight, and a stream whose
    publisher stops leaves its credits to the other one."""
    near, far = new_host(), new_host()
    udp = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with (
        penstock.connect(near.directory) as away,
        penstock.connect(far.directory, credits=8) as receiver,
        receiver.add_subscription(udp, STREAM) as first,
        receiver.add_subscription("aeron:ipc?term-length=64k", STREAM) as second,
        receiver.add_subscription("aeron:ipc?term-length=64k", 7, credits=5) as other,
        away.add_publication(udp, STREAM) as remote,
        receiver.add_publication("aeron:ipc?term-length=64k", STREAM) as local,
        receiver.add_publication("aeron:ipc?term-length=64k", 7) as apart,
    ):
        for publication, subscription in ((remote, first), (local, second), (apart, other)):
            connected(publication, subscription)
        assert apart.credits.granted == 5

        def both() -> bool:
            sent = offered(remote, 100), offered(local, 100)
            assert sum(sent) <= 8
            read(first, second)
            return sent == (4, 4)

        def alone() -> bool:
            sent = offered(local, 100)
            assert sent <= 8
            read(first, second)
            return sent == 7

        eventually(lambda: local.credits.is_granted and remote.credits.is_granted, "no grant")
        eventually(both, "the credits are not divided")
        eventually(alone, "an idle publisher keeps its credits")


def read(*subscriptions: Subscription) -> None:
    for subscription in subscriptions:
        subscription.poll(lambda _message, _header: None)


def test_automatic_credits_grow_while_a_publisher_needs_them(pair: Pair) -> None:
    publication, subscription = pair.open("auto")

    def grown() -> bool:
        offered(publication, 1000)
        subscription.poll(lambda _m, _h: None, 1000)
        return subscription.credits.granted - subscription.credits.returned > 64

    assert publication.credits.granted <= 64
    eventually(grown, "the daemon grants no more than at first")


# ---- withhold --------------------------------------------------------------------------------


def test_after_withhold_nothing_is_in_flight(pair: Pair) -> None:
    publication, subscription = pair.open(8)
    got: list[bytes] = []
    sent = 0
    for _round in range(5):
        sent += offered(publication, 100)
        subscription.withhold(30, lambda m, _h: got.append(bytes(m)))
        assert len(got) == sent
        assert publication.offer(b"no") == Offer.NO_CREDIT
        assert subscription.credits.held == 0
        subscription.resume()
        eventually(lambda: publication.credits.available == 8, "no credit after resume")


def test_a_withhold_that_times_out_names_what_is_outstanding(pair: Pair) -> None:
    publication, subscription = pair.open(Credits(4, handles=True))
    assert offered(publication, 100) == 4
    held = [subscription.recv(10) for _ in range(4)]
    with pytest.raises(penstock.WithholdTimeout, match="0 of 4 messages returned") as caught:
        subscription.withhold(0.3)
    (outstanding,) = caught.value.outstanding
    assert (outstanding.state, outstanding.final, outstanding.returned) == ("settled", 4, 0)
    for message in held:
        message.credit.release()
    eventually(lambda: publication.offer(b"on") > 0, "the stream does not continue")


def test_an_image_that_joins_while_withheld_starts_withheld(pair: Pair) -> None:
    publication, subscription = pair.open(4)
    subscription.withhold(30)
    other = pair.sender.add_exclusive_publication(pair.channel, STREAM)
    eventually(lambda: len(subscription.images) == 2, "no second image")
    eventually(lambda: other.is_connected and other.credits.is_granted, "no connection")
    assert offered(other, 1) == 0
    subscription.resume()
    eventually(lambda: other.offer(b"yes") > 0, "no credit")
    eventually(lambda: publication.offer(b"yes") > 0, "no credit")


def test_drain_closes_after_the_last_message(pair: Pair) -> None:
    publication, subscription = pair.open(8)
    sent = offered(publication, 100)
    got: list[bytes] = []
    subscription.drain(30, lambda m, _h: got.append(bytes(m)))
    assert len(got) == sent
    assert subscription.is_closed


def test_withhold_waits_for_an_image_whose_first_frame_is_on_its_way(
    host: PenstockHost, peer: PenstockHost, port: Port
) -> None:
    with penstock.connect(host.directory) as receiver, penstock.connect(peer.directory) as sender:
        for _ in range(8):
            channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
            subscription = receiver.add_subscription(channel, STREAM, credits=4)
            publication = sender.add_publication(channel, STREAM)
            eventually(lambda p=publication: p.offer(b"x") > 0, "no grant arrived")
            got: list[bytes] = []
            subscription.withhold(60, lambda m, _h, to=got: to.append(bytes(m)))
            assert got == [b"x"]
            publication.close()
            subscription.close()


def test_withhold_without_credits_is_refused(pair: Pair) -> None:
    with pair.receiver.add_subscription(pair.channel, STREAM) as subscription, \
            pytest.raises(penstock.ChannelRefused, match="grants no credits"):
        subscription.withhold(1)


def test_an_orchestrator_withholds_a_stream_and_resumes_it(
    new_host: NewHost, port: Port, cli: Cli
) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    near, far = new_host(), new_host()
    with penstock.connect(near.directory) as sender, \
            penstock.connect(far.directory, name="operator") as receiver:
        subscription = receiver.add_subscription(channel, STREAM, credits=4)
        publication = sender.add_publication(channel, STREAM)
        connected(publication, subscription)
        eventually(lambda: publication.offer(b"x") > 0, "no grant arrived")
        late = cli("withhold", str(STREAM), "--timeout", "0.2", "--json", directory=far.directory)
        assert late.returncode == 2
        assert "messages were outstanding" in late.stderr
        (reader,) = json.loads(late.stdout)["readers"]
        assert (reader["client"], reader["final"], reader["returned"]) == ("operator", 1, 0)
        assert subscription.recv(10) == b"x"
        done = cli("withhold", str(STREAM), directory=far.directory)
        assert (done.returncode, "settled" in done.stdout) == (0, True), done.stderr
        assert publication.offer(b"no") == Offer.NO_CREDIT
        assert cli("resume", str(STREAM), directory=far.directory).returncode == 0
        eventually(lambda: publication.offer(b"yes") > 0, "no credit after resume")
        assert subscription.recv(10) == b"yes"
        assert cli("drain", str(STREAM), directory=far.directory).returncode == 0
        assert publication.offer(b"no") == Offer.NO_CREDIT
        none = cli("withhold", "77", directory=far.directory)
        assert (none.returncode, "grants credits on stream 77" in none.stderr) == (2, True)


def test_the_example_of_an_operator_with_checkpoints_runs(host: PenstockHost) -> None:
    script = Path(__file__).parents[2] / "examples" / "checkpoint.py"
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PENSTOCK_DIR": str(host.directory)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "checkpoint of 5000 events, 7 words\n"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_awaited_withhold_lets_another_task_receive(host: PenstockHost, backend: str) -> None:
    got: list[bytes] = []

    async def test() -> None:
        async with (
            penstock.open_client(host.directory) as client,
            await client.add_subscription("aeron:ipc", STREAM, credits=8) as subscription,
            await client.add_publication("aeron:ipc", STREAM) as publication,
            anyio.create_task_group() as group,
        ):
            for number in range(8):
                await publication.send(b"%d" % number, 30)
            assert await publication.send(b"x", on_no_credit="drop") == Offer.NO_CREDIT

            async def receive() -> None:
                async for message in subscription:
                    got.append(message)

            group.start_soon(receive)
            await subscription.withhold(60)
            assert len(got) == 8
            assert publication.offer(b"no") == Offer.NO_CREDIT
            await subscription.resume()
            await publication.send(b"8", 30)
            while len(got) < 9:
                await anyio.lowlevel.checkpoint()
            await subscription.drain(60)

    async def limited() -> None:
        with anyio.fail_after(240):
            await test()

    anyio.run(limited, backend=backend)
