# SPDX-License-Identifier: Apache-2.0
"""Streams between our daemon and Aeron's media driver, both ways, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.hosts import PenstockHost, penstock_host
from support.messages import digest, messages

from interop import aeron

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("aeron_built")]

Ports = Callable[[], int]
AnyHost = aeron.AeronHost | PenstockHost

BOTH_WAYS = ["aeron-to-penstock", "penstock-to-aeron"]
TERM_64K = "|term-length=64k"
TERM_1M = "|term-length=1m"


class Pair:
    """One host of each kind, and which of them publishes."""

    def __init__(self, way: str, ours: PenstockHost, theirs: aeron.AeronHost) -> None:
        self.ours, self.theirs = ours, theirs
        self.sender: AnyHost
        self.receiver: AnyHost
        self.sender, self.receiver = (
            (theirs, ours) if way == "aeron-to-penstock" else (ours, theirs)
        )


@pytest.fixture
def pair(
    request: pytest.FixtureRequest, directories: Callable[[str], Path]
) -> Iterator[Pair]:
    with (
        aeron.aeron_host(directories("aeron")) as theirs,
        penstock_host(directories("penstock")) as ours,
    ):
        yield Pair(request.param, ours, theirs)


both_ways = pytest.mark.parametrize("pair", BOTH_WAYS, indirect=True)


def arguments(channel: str, count: int, *more: str) -> list[str]:
    return [f"--channel={channel}", f"--count={count}", *more]


def transfer(
    sender: AnyHost,
    receiver: AnyHost,
    channel: str,
    *,
    sizes: str,
    count: int,
    term: str = TERM_64K,
    exclusive: int = 0,
) -> None:
    """One whole stream; fails unless every byte arrives in order."""
    seed = 11
    published = [f"--sizes={sizes}", f"--seed={seed}", f"--exclusive={exclusive}"]
    with receiver.sub(*arguments(channel, count)) as sub:
        sub.wait("added")
        with sender.pub(*arguments(channel + term, count, *published)) as pub:
            sent = pub.wait("done")
            got = sub.wait("done")
            assert pub.finish() == 0
        assert sub.finish() == 0
    assert sent["sha256"] == digest(messages(seed=seed, sizes=sizes, count=count))
    assert got["sha256"] == sent["sha256"]
    assert got["count"] == count


@both_ways
@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ("0-1", 3000),
        ("1-200", 3000),
        ("1376", 300),
        ("1377", 300),
        ("1-8192", 400),
        ("8192", 200),
    ],
)
def test_unicast_messages_of_every_size_over_many_terms(
    pair: Pair, ports: Ports, sizes: str, count: int
) -> None:
    transfer(
        pair.sender,
        pair.receiver,
        f"aeron:udp?endpoint=127.0.0.1:{ports()}",
        sizes=sizes,
        count=count,
    )


@both_ways
def test_an_exclusive_publication_arrives_whole(pair: Pair, ports: Ports) -> None:
    transfer(
        pair.sender,
        pair.receiver,
        f"aeron:udp?endpoint=127.0.0.1:{ports()}",
        sizes="1-4000",
        count=500,
        exclusive=1,
    )


@both_ways
def test_aeron_finds_nothing_wrong_with_our_frames(pair: Pair, ports: Ports) -> None:
    """Trailers and all: what we send beyond Aeron's own frames must pass unseen."""
    channel = f"aeron:udp?endpoint=127.0.0.1:{ports()}"
    transfer(pair.sender, pair.receiver, channel, sizes="1-4000", count=500)
    lines = aeron.aeron_stat(pair.theirs.directory).splitlines()
    assert counter(lines, "Invalid packets") == 0
    assert counter(lines, "Status Messages rejected") == 0
    errors = [line for line in lines if " - Errors: " in line]
    assert [line.split(" - ")[0].split(":")[1].strip() for line in errors] == ["0"]


@both_ways
def test_a_stream_over_ipv6_arrives_whole(pair: Pair, ports: Ports) -> None:
    transfer(
        pair.sender,
        pair.receiver,
        f"aeron:udp?endpoint=[::1]:{ports()}",
        sizes="1-4000",
        count=500,
    )


def to_two_receivers(
    pair: Pair, channels: list[str], published: str, *more: str
) -> None:
    """A stream from the sender to two receivers, started when both have their image."""
    sizes, count, seed = "1-2000", 300, 3
    with (
        pair.receiver.sub(*arguments(channels[0], count)) as one,
        pair.receiver.sub(*arguments(channels[1], count)) as two,
    ):
        one.wait("added")
        two.wait("added")
        publisher = [f"--sizes={sizes}", f"--seed={seed}", "--pause-at=0", *more]
        with pair.sender.pub(*arguments(published + TERM_1M, count, *publisher)) as pub:
            one.wait("image")
            two.wait("image")
            pub.wait("paused")
            pub.say()
            expected = digest(messages(seed=seed, sizes=sizes, count=count))
            assert pub.wait("done")["sha256"] == expected
            assert one.wait("done")["sha256"] == expected
            assert two.wait("done")["sha256"] == expected
            assert pub.finish() == 0


@both_ways
def test_two_receivers_get_a_multicast_stream(pair: Pair, ports: Ports) -> None:
    channel = f"aeron:udp?endpoint=239.20.0.1:{ports()}|interface=127.0.0.1"
    to_two_receivers(pair, [channel, channel], channel)


@both_ways
def test_two_receivers_join_a_dynamic_destination_list(pair: Pair, ports: Ports) -> None:
    control = f"control=127.0.0.1:{ports()}"
    channels = [
        f"aeron:udp?{control}|control-mode=dynamic|endpoint=127.0.0.1:{ports()}" for _ in range(2)
    ]
    to_two_receivers(pair, channels, f"aeron:udp?{control}|control-mode=dynamic")


@both_ways
def test_two_receivers_get_a_manual_destination_list(pair: Pair, ports: Ports) -> None:
    channels = [f"aeron:udp?endpoint=127.0.0.1:{ports()}" for _ in range(2)]
    to_two_receivers(
        pair,
        channels,
        f"aeron:udp?control=127.0.0.1:{ports()}|control-mode=manual",
        *(f"--destination={channel}" for channel in channels),
    )


@both_ways
def test_a_restarted_publisher_is_a_new_session(pair: Pair, ports: Ports) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{ports()}"
    count, sizes = 200, "1-3000"
    first = [f"--sizes={sizes}", "--seed=1"]
    second = [f"--sizes={sizes}", "--seed=2"]
    with pair.receiver.sub(*arguments(channel, 2 * count, f"--mark={count}")) as sub:
        sub.wait("added")
        with pair.sender.pub(*arguments(channel + TERM_64K, count, *first)) as pub:
            image = sub.wait("image")
            sub.wait("mark")
            assert pub.finish() == 0
        with pair.sender.pub(*arguments(channel + TERM_64K, count, *second)) as pub:
            new_daemon = sub.wait("image")
            got = sub.wait("done")
            assert pub.finish() == 0
    assert new_daemon["session"] != image["session"]
    assert got["sha256"] == digest(
        [
            *messages(seed=1, sizes=sizes, count=count),
            *messages(seed=2, sizes=sizes, count=count),
        ]
    )


@both_ways
def test_a_restarted_subscriber_joins_where_the_stream_is(pair: Pair, ports: Ports) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{ports()}"
    count, sizes = 200, "1-3000"
    everything = list(messages(seed=1, sizes=sizes, count=2 * count))
    publisher = [f"--sizes={sizes}", "--seed=1", f"--pause-at={count}"]
    with pair.receiver.sub(*arguments(channel, count)) as before:
        before.wait("added")
        with pair.sender.pub(*arguments(channel + TERM_64K, 2 * count, *publisher)) as pub:
            paused = pub.wait("paused")
            assert before.wait("done")["sha256"] == digest(everything[:count])
            assert before.finish() == 0
            with pair.receiver.sub(*arguments(channel, count)) as after:
                assert after.wait("image")["position"] == paused["position"]
                pub.say()
                assert after.wait("done")["sha256"] == digest(everything[count:])
            assert pub.finish() == 0


@pytest.mark.slow
@pytest.mark.parametrize("way", BOTH_WAYS)
def test_five_percent_loss_both_ways(
    way: str, directories: Callable[[str], Path], ports: Ports
) -> None:
    impairment = "send-loss=5%,recv-loss=5%,seed=7"
    with (
        aeron.aeron_host(directories("aeron"), aeron.loss(0.05, seed=7)) as theirs,
        penstock_host(directories("penstock"), "--impair", impairment) as ours,
    ):
        pair = Pair(way, ours, theirs)
        transfer(
            pair.sender,
            pair.receiver,
            f"aeron:udp?endpoint=127.0.0.1:{ports()}",
            sizes="1-8192",
            count=600,
        )
        lines = aeron.aeron_stat(ours.directory).splitlines()
    naks = "NAKs sent" if way == "aeron-to-penstock" else "NAKs received"
    assert counter(lines, naks) > 0


def counter(lines: list[str], label: str) -> int:
    """A value out of AeronStat's output."""
    for line in lines:
        if line.endswith(f" - {label}"):
            return int(line.split(":")[1].split(" - ")[0].replace(",", ""))
    raise AssertionError(f"no counter {label!r} in\n" + "\n".join(lines))


@pytest.mark.parametrize("pair", ["aeron-to-penstock"], indirect=True)
def test_aeron_stat_reads_our_directory(pair: Pair, ports: Ports) -> None:
    channel = f"aeron:udp?endpoint=127.0.0.1:{ports()}"
    with pair.receiver.sub(*arguments(channel, 2)) as sub:
        sub.wait("added")
        with pair.sender.pub(*arguments(channel, 1)) as pub:
            pub.wait("done")
            session = sub.wait("image")["session"]
            lines = aeron.aeron_stat(pair.ours.directory).splitlines()
            pub.finish()
    assert counter(lines, "Bytes received") > 0
    assert counter(lines, "Status Messages sent") > 0
    assert counter(lines, "Invalid packets") == 0
    for name in ("sub-pos", "rcv-hwm", "rcv-pos"):
        found = [line for line in lines if f" - {name}: " in line and f" {session} 1001 " in line]
        assert len(found) == 1, "\n".join(lines)
        assert channel in found[0]
