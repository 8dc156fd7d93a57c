# SPDX-License-Identifier: Apache-2.0
"""The same stream through the simulator and through real sockets that are impaired alike: equal
content, and a goodput that protocol and link decide, not the machine."""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from support.hosts import PenstockHost, memory_directory, penstock_host
from support.messages import digest, messages

from penstock.sim.core import Link
from penstock.sim.scenario import MS_NS, SECOND_NS, Scenario, host_ip
from penstock.sim.world import World

STREAM = 1001
SIZES = "1000-1300"
ROUNDS = 5


@attrs.frozen(kw_only=True)
class Route:
    """What decides the goodput."""

    name: str
    delay_ms: int                       # one way
    loss_percent: int                   # each way
    publication: str                    # options of the channel
    count: int
    about_bytes_per_s: int


PATHS = (
    # Window over round trip: 128 KiB in 300 ms.
    Route(name="window", delay_ms=150, loss_percent=0, publication="|term-length=1m", count=1600,
          about_bytes_per_s=410_000),
    # A rate, with losses to repair.
    Route(name="rate", delay_ms=20, loss_percent=2, publication="|term-length=1m|ps-rate=300k",
          count=1200, about_bytes_per_s=300_000),
)


@attrs.frozen(kw_only=True)
class Outcome:
    sha256: str
    bytes_per_s: float                  # from the first message on


def simulated(path: Route, contents: list[bytes]) -> Outcome:
    """The production client by hand, in steps of a millisecond."""
    link = Link(delay_ns=path.delay_ms * MS_NS, loss_ppm=path.loss_percent * 10_000)
    scenario = Scenario(name="against", link=link, publishers=(), subscribers=())
    channel = f"aeron:udp?endpoint={host_ip(1)}:40456"
    received: list[bytes] = []
    first_ns = last_ns = 0
    with World(scenario, 1) as world:
        sender, receiver = world.hosts
        with sender.connect("pub") as pub_client, receiver.connect("sub") as sub_client:
            publication = pub_client.add_publication(channel + path.publication, STREAM)
            subscription = sub_client.add_subscription(channel, STREAM)
            offered = 0
            while len(received) < len(contents):
                while offered < len(contents) and publication.offer(contents[offered]) > 0:
                    offered += 1
                world.native.touch(sender.index)
                world.run_until(world.now_ns + MS_NS)
                if subscription.poll(lambda m, _h: received.append(bytes(m)), limit=256):
                    first_ns = first_ns or world.now_ns
                    last_ns = world.now_ns
                world.native.touch(receiver.index)
                assert world.now_ns < 120 * SECOND_NS, f"{len(received)} came"
    length = sum(map(len, received)) - len(received[0])
    return Outcome(
        sha256=digest(received), bytes_per_s=length * SECOND_NS / (last_ns - first_ns)
    )


@contextlib.contextmanager
def impaired(path: Route, seed: int) -> Iterator[PenstockHost]:
    words = f"delay={path.delay_ms}ms,recv-loss={path.loss_percent}%,seed={seed}"
    parent = Path(tempfile.mkdtemp(prefix="penstock-test-", dir=memory_directory()))
    try:
        with penstock_host(parent / "penstock", "--impair", words) as host:
            yield host
    finally:
        shutil.rmtree(parent, ignore_errors=True)


def through_sockets(path: Route, contents: list[bytes]) -> Outcome:
    """Two daemons on loopback, each of which is late with, and loses some of, what arrives."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        channel = f"aeron:udp?endpoint=127.0.0.1:{probe.getsockname()[1]}"
    count = f"--count={len(contents)}"
    with (
        impaired(path, 1) as sender,
        impaired(path, 2) as receiver,
        receiver.sub(f"--channel={channel}", count, "--mark=1") as sub,
        sender.pub(f"--channel={channel}{path.publication}", count, "--seed=9",
                   f"--sizes={SIZES}") as pub,
    ):
        begin = sub.wait("mark")
        done = sub.wait("done")
        assert pub.wait("done")["sha256"] == digest(contents)
        assert pub.finish() == 0
    return Outcome(
        sha256=done["sha256"],
        bytes_per_s=(done["bytes"] - len(contents[0])) / (done["at"] - begin["at"]),
    )


@pytest.mark.alone
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_sockets_and_simulator_agree(path: Route) -> None:
    contents = list(messages(seed=9, sizes=SIZES, count=path.count))
    virtual = simulated(path, contents)
    assert virtual.bytes_per_s == pytest.approx(path.about_bytes_per_s, rel=0.1)
    rates = []
    for _ in range(ROUNDS):             # a busy machine delays daemons, and not all rounds alike
        real = through_sockets(path, contents)
        assert virtual.sha256 == real.sha256 == digest(contents)
        rates.append(real.bytes_per_s)
        if real.bytes_per_s > 0.85 * virtual.bytes_per_s:
            break
    print(f"{path.name}: {virtual.bytes_per_s:.0f} simulated, {rates} real")
    assert max(rates) == pytest.approx(virtual.bytes_per_s, rel=0.15), rates
