# SPDX-License-Identifier: Apache-2.0
"""Streams between hosts on a real (virtual) network."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from support.hosts import PenstockHost
from support.messages import digest, messages
from support.processes import Peer

from cluster.network import Network

pytestmark = pytest.mark.needs_root

Start = Callable[..., PenstockHost]
STREAM = "1001"
TERM = "|term-length=1m"


def receive(host: PenstockHost, channel: str, count: int) -> Peer:
    """``penstock sub`` on a host."""
    where = ["--dir", str(host.directory)]
    wanted = ["--count", str(count), "--sha256", "--json", "--timeout", "60"]
    return host.command("sub", channel, STREAM, *wanted, *where)


def result_of(sub: Peer) -> dict[str, object]:
    """What ``penstock sub --json`` printed."""
    text = sub.output()
    assert sub.finish() == 0, sub.errors()
    result = json.loads(text)
    assert isinstance(result, dict)
    return result


@pytest.fixture(params=["", "loss=5%,seed=3"], ids=["clean", "lossy"])
def impairment(request: pytest.FixtureRequest) -> list[str]:
    return ["--impair", request.param] if request.param else []


def test_unicast_crosses_two_hosts(lan: Network, start: Start, impairment: list[str]) -> None:
    sender, receiver = start(0, *impairment), start(1, *impairment)
    channel = f"aeron:udp?endpoint={lan.address(1)}:40456"
    count, sizes = 2000, "1-4000"
    expected = digest(messages(seed=1, sizes=sizes, count=count))
    published = [f"--channel={channel}{TERM}", f"--count={count}", "--seed=1", f"--sizes={sizes}"]
    with receive(receiver, channel, count) as sub, sender.pub(*published) as pub:
        assert pub.wait("done")["sha256"] == expected
        assert result_of(sub)["sha256"] == expected
        assert pub.finish() == 0


def test_multicast_reaches_two_receivers(lan: Network, start: Start, impairment: list[str]) -> None:
    hosts = [start(number, *impairment) for number in range(3)]
    channel = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.77.0.0/24"
    count, sizes = 300, "1-2000"
    received = [f"--channel={channel}", f"--count={count}"]
    published = [f"--channel={channel}{TERM}", "--pause-at=0", "--seed=2", f"--sizes={sizes}"]
    expected = digest(messages(seed=2, sizes=sizes, count=count))
    with (
        hosts[1].sub(*received) as one,
        hosts[2].sub(*received) as two,
        hosts[0].pub(*published, f"--count={count}") as pub,
    ):
        sources = {one.wait("image")["source"], two.wait("image")["source"]}
        assert len(sources) == 1
        assert sources.pop().startswith(f"{lan.address(0)}:")
        pub.wait("paused")
        pub.say()
        assert one.wait("done")["sha256"] == expected
        assert two.wait("done")["sha256"] == expected
        assert pub.finish() == 0


def test_a_host_whose_cable_is_pulled_goes_on_where_it_was(lan: Network, start: Start) -> None:
    """Shorter than the time after which a receiver is given up: nothing is lost."""
    sender, receiver = start(0), start(1)
    channel = f"aeron:udp?endpoint={lan.address(1)}:40456"
    count, sizes = 4000, "1000"
    published = [f"--channel={channel}|term-length=64k", f"--count={count}", f"--sizes={sizes}"]
    with (
        receiver.sub(f"--channel={channel}", f"--count={count}", f"--mark={count // 2}") as sub,
        sender.pub(*published, "--seed=4", f"--pause-at={count // 2}") as pub,
    ):
        pub.wait("paused")
        sub.wait("mark")
        lan.cut(1)
        try:
            pub.say()
            with pytest.raises(AssertionError, match="silent"):
                sub.next(timeout_s=1.0)  # the time without a network, not a synchronisation
        finally:
            lan.join(1)
        expected = digest(messages(seed=4, sizes=sizes, count=count))
        assert pub.wait("done")["sha256"] == expected
        assert sub.wait("done")["sha256"] == expected
        assert pub.finish() == 0


def test_a_host_that_dies_and_returns_joins_again(lan: Network, start: Start) -> None:
    sender, receiver = start(0), start(1)
    channel = f"aeron:udp?endpoint={lan.address(1)}:40456"
    count, sizes = 400, "1-3000"
    everything = list(messages(seed=5, sizes=sizes, count=2 * count))
    published = [f"--channel={channel}{TERM}", f"--count={2 * count}", f"--sizes={sizes}"]
    with sender.pub(*published, "--seed=5", f"--pause-at={count}") as pub:
        with receiver.sub(f"--channel={channel}", f"--count={count}") as before:
            assert before.wait("done")["sha256"] == digest(everything[:count])
            assert before.finish() == 0
        pub.wait("paused")
        receiver.kill()
        receiver.start()
        with receiver.sub(f"--channel={channel}", f"--count={count}") as after:
            after.wait("image")
            pub.say()
            assert after.wait("done")["sha256"] == digest(everything[count:])
            assert pub.finish() == 0


def test_a_dead_receiver_does_not_hold_the_others(lan: Network, start: Start) -> None:
    """Multicast goes on to the living."""
    hosts = [start(number) for number in range(3)]
    channel = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.77.0.0/24"
    count, sizes = 600, "1-2000"
    published = [f"--channel={channel}{TERM}", "--pause-at=0", "--seed=6", f"--sizes={sizes}"]
    with (
        hosts[1].sub(f"--channel={channel}", f"--count={count}") as living,
        hosts[2].sub(f"--channel={channel}", f"--count={count}") as dying,
        hosts[0].pub(*published, f"--count={count}") as pub,
    ):
        living.wait("image")
        dying.wait("image")
        pub.wait("paused")
        hosts[2].kill()
        pub.say()
        expected = digest(messages(seed=6, sizes=sizes, count=count))
        assert living.wait("done")["sha256"] == expected
        assert pub.finish() == 0
