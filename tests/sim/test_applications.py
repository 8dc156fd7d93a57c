# SPDX-License-Identifier: Apache-2.0
"""Applications in the simulator: unchanged functions run in virtual time under loss, kills and slow
readers, the same seed gives the same run, and calls without a virtual form are reported."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import trio

import penstock
from penstock.sim.applications import App, Simulation, SimulationError
from penstock.sim.applications.simulation import Maker

PAGE = Path(__file__).parents[2] / "docs" / "testing-your-application.md"
CHANNEL = "aeron:udp?endpoint=10.0.0.2:40456|term-length=64k"
COUNT = 300
WANTED = [b"message %d" % number for number in range(COUNT)]


@pytest.fixture
def simulations() -> Iterator[Maker]:
    """What the plugin's fixture gives; the plugin itself runs in the test of the page."""
    maker = Maker()
    yield maker
    for simulation in maker.made:
        simulation.close()


def publish(count: int = COUNT) -> None:
    with penstock.connect() as client, client.add_publication(CHANNEL, 1001) as publication:
        for number in range(count):
            publication.send(b"message %d" % number, timeout_s=10)


def receive() -> list[bytes]:
    with penstock.connect() as client, client.add_subscription(CHANNEL, 1001) as subscription:
        return [bytes(m) for m in subscription.messages(timeout_s=20, until_end=True)]


def spin() -> list[bytes]:
    """Never waits, as latency-critical readers do."""
    received: list[bytes] = []
    with penstock.connect() as client, client.add_subscription(CHANNEL, 1001) as subscription:
        while len(received) < COUNT:
            subscription.poll(lambda message, _header: received.append(bytes(message)))
    return received


async def publish_in_loop(count: int = COUNT) -> None:
    async with penstock.open_client() as client:
        publication = await client.add_publication(CHANNEL, 1001)
        for number in range(count):
            await publication.send(b"message %d" % number, timeout_s=10)
        await publication.close()


async def receive_in_loop() -> list[bytes]:
    async with penstock.open_client() as client:
        subscription = await client.add_subscription(CHANNEL, 1001)
        return [bytes(m) async for m in subscription.messages(timeout_s=20, until_end=True)]


def two_hosts(simulations: Maker, **settings: Any) -> Simulation:
    simulation = simulations(**{"seed": 3, "delay_ms": 5, **settings})
    simulation.host("a")
    simulation.host("b")
    return simulation


READERS = {
    "sync": (receive, "asyncio"), "spin": (spin, "asyncio"),
    "asyncio": (receive_in_loop, "asyncio"), "trio": (receive_in_loop, "trio"),
    "own asyncio": (lambda: asyncio.run(receive_in_loop()), "asyncio"),
    "own trio": (lambda: trio.run(receive_in_loop), "asyncio"),
}
PUBLISHERS = {
    "sync": (publish, "asyncio"), "asyncio": (publish_in_loop, "asyncio"),
    "trio": (publish_in_loop, "trio"),
}


@pytest.mark.parametrize("publisher", PUBLISHERS)
@pytest.mark.parametrize("reader", READERS)
def test_unchanged_functions_lose_nothing_on_a_lossy_link(
    simulations: Maker, reader: str, publisher: str
) -> None:
    runs = []
    for _ in range(2):
        simulation = two_hosts(simulations, loss=0.1)
        receiving, backend = READERS[reader]
        received = simulation.start(receiving, host="b", backend=backend)
        publishing, backend = PUBLISHERS[publisher]
        simulation.start(publishing, host="a", backend=backend)
        simulation.run()
        assert received.result() == WANTED
        assert simulation.network().lost > 0
        runs.append((simulation.now_ns, simulation.trace))
    assert runs[0] == runs[1]


def test_another_seed_is_another_run(simulations: Maker) -> None:
    traces = set()
    for seed in range(5):
        simulation = two_hosts(simulations, seed=seed, loss=0.2)
        received = simulation.start(receive, host="b")
        simulation.start(publish, host="a")
        simulation.run()
        assert received.result() == WANTED
        traces.add(simulation.trace)
    assert len(traces) == 5


def test_a_slow_reader_holds_the_publisher(simulations: Maker) -> None:
    """5 000 messages of a millisecond each take five seconds of virtual time, and little real."""
    began = time.process_time()
    simulation = two_hosts(simulations)
    held: list[float] = []

    def publisher() -> None:
        with penstock.connect() as client, client.add_publication(CHANNEL, 1001) as publication:
            for number in range(5000):
                publication.send(b"message %d" % number, timeout_s=10)
            held.append(sum(publication.pressure().blocked_ns.values()) / 1e9)

    received = simulation.start(receive, host="b", message_us=1000)
    simulation.start(publisher, host="a")
    simulation.run()
    assert len(received.result()) == 5000
    assert 5.0 <= simulation.now_s < 5.6
    assert 0.5 < held[0] < simulation.now_s      # by the clock of the simulation
    assert time.process_time() - began < 20


@pytest.mark.parametrize("backend", ["sync", "asyncio", "trio"])
def test_a_killed_reader_is_noticed_and_replaced(simulations: Maker, backend: str) -> None:
    simulation = two_hosts(simulations)
    function = receive if backend == "sync" else receive_in_loop
    loop = "asyncio" if backend == "sync" else backend
    victim = simulation.start(function, host="b", backend=loop)
    heir = simulation.start(function, host="b", backend=loop, at_s=1.5)
    simulation.start(publish, 20_000, host="a")
    simulation.at(0.1, simulation.kill, victim)
    simulation.run()
    assert victim.is_killed
    with pytest.raises(SimulationError, match="was killed"):
        victim.result()
    assert heir.result()[-1] == b"message 19999"


@pytest.mark.parametrize("backend", ["sync", "asyncio", "trio"])
def test_streams_outlive_a_daemon(simulations: Maker, backend: str) -> None:
    simulation = two_hosts(simulations, loss=0.05)
    function = receive if backend == "sync" else receive_in_loop
    loop = "asyncio" if backend == "sync" else backend
    received = simulation.start(function, host="b", backend=loop)
    simulation.start(publish, 5000, host="a")
    simulation.at(0.1, simulation.kill_daemon, "b")
    simulation.at(0.8, simulation.start_daemon, "b")
    simulation.run()
    assert len(received.result()) == 5000
    assert simulation.now_s > 0.8


def claims(count: int = COUNT) -> None:
    with penstock.connect() as client, client.add_publication(CHANNEL, 1001) as publication:
        publication.wait_connected(10)
        for number in range(count):
            text = b"message %d" % number
            while not (claim := publication.try_claim(len(text))):
                publication.wait_connected(10)
            with claim:
                claim.buffer[:] = text


def batches(count: int = COUNT) -> None:
    with penstock.connect() as client, client.add_publication(CHANNEL, 1001) as publication:
        for first in range(0, count, 10):
            publication.send_batch(
                [b"message %d" % number for number in range(first, first + 10)], timeout_s=10
            )


@pytest.mark.parametrize("publisher", [publish, publish_in_loop, claims, batches])
def test_a_daemon_is_killed_at_a_message(
    simulations: Maker, publisher: Callable[[], object]
) -> None:
    """Sends and receives take no virtual time, so a test cannot name the moment by a time."""
    simulation = two_hosts(simulations, loss=0.05)
    received = simulation.start(receive, host="b")
    publishing = simulation.start(publisher, host="a")
    seen: list[tuple[int, int]] = []

    def kill() -> None:
        seen.append((publishing.sent, received.received))
        simulation.kill_daemon("a")
        simulation.at(simulation.now_s + 0.05, simulation.start_daemon, "a")

    simulation.when(lambda: publishing.sent >= 150, kill)
    simulation.run()
    assert [sent for sent, _ in seen] == [150]
    assert received.result() == WANTED
    assert (publishing.sent, received.received) == (COUNT, COUNT)


@pytest.mark.parametrize("backend", ["sync", "asyncio", "trio"])
def test_a_reader_is_killed_after_a_message(simulations: Maker, backend: str) -> None:
    processed: list[bytes] = []

    def read() -> None:
        with penstock.connect() as client, client.add_subscription(CHANNEL, 1001) as subscription:
            processed.extend(bytes(message) for message in subscription)

    async def read_in_loop() -> None:
        async with penstock.open_client() as client:
            async for message in await client.add_subscription(CHANNEL, 1001):
                processed.append(bytes(message))

    simulation = two_hosts(simulations)
    reader = simulation.start(
        read if backend == "sync" else read_in_loop, host="b",
        backend="trio" if backend == "trio" else "asyncio", background=True,
    )
    simulation.start(publish, host="a")
    simulation.when(lambda: reader.received >= 100, simulation.kill, reader)
    simulation.run()
    simulation.run_for(1)
    assert reader.is_killed
    assert processed == WANTED[:100]


def test_conditions_see_the_network_and_each_other(simulations: Maker) -> None:
    simulation = two_hosts(simulations, loss=0.1)
    received = simulation.start(receive, host="b")
    simulation.start(publish, host="a")
    order: list[str] = []
    simulation.when(
        lambda: simulation.network().lost >= 2, lambda: (
            order.append("lost"),
            simulation.when(lambda: received.is_finished, order.append, "finished"),
        )
    )
    simulation.run()
    assert order == ["lost", "finished"]


def test_a_condition_that_was_never_true_is_an_error(simulations: Maker) -> None:
    simulation = two_hosts(simulations)
    simulation.start(receive, host="b")
    publishing = simulation.start(publish, host="a")
    simulation.when(lambda: publishing.sent > COUNT, simulation.kill_daemon, "b")
    with pytest.raises(SimulationError, match=r"at test_applications\.py:\d+ was never true"):
        simulation.run()


def test_a_crashed_host_comes_back_empty(simulations: Maker) -> None:
    simulation = two_hosts(simulations)
    victim = simulation.start(receive, host="b")
    heir = simulation.start(receive, host="b", at_s=2.0)      # connects when the daemon is there
    simulation.start(publish, 20_000, host="a")
    simulation.at(0.05, simulation.crash, "b")
    simulation.at(3.0, simulation.restart, "b")
    simulation.run()
    assert victim.is_killed
    assert heir.result()[-1] == b"message 19999"


def test_a_paused_reader_takes_nothing(simulations: Maker) -> None:
    simulation = two_hosts(simulations)
    received = simulation.start(receive, host="b")
    simulation.start(publish, 3000, host="a")
    simulation.at(0.02, simulation.pause, received)
    simulation.at(4.0, simulation.resume, received)
    simulation.run()
    assert len(received.result()) == 3000
    assert simulation.now_s >= 4.0


def test_a_broken_link_heals(simulations: Maker) -> None:
    simulation = two_hosts(simulations)
    received = simulation.start(receive, host="b")
    simulation.start(publish, 3000, host="a")
    simulation.at(0.02, simulation.link, "a", "b")
    simulation.at(0.02, lambda: simulation.link("a", "b", loss=1.0))
    simulation.at(1.5, lambda: simulation.link("a", "b", delay_ms=5))
    simulation.run()
    assert len(received.result()) == 3000
    assert simulation.now_s >= 1.5


def test_clocks_show_virtual_time(simulations: Maker) -> None:
    def wait() -> tuple[float, ...]:
        before = time.time(), time.monotonic(), time.perf_counter(), time.monotonic_ns() / 1e9
        with penstock.connect() as client, client.add_subscription("aeron:ipc", 1) as subscription:
            assert not subscription.wait(1000)
        after = time.time(), time.monotonic(), time.perf_counter(), time.monotonic_ns() / 1e9
        return tuple(b - a for a, b in zip(before, after, strict=True))

    real = time.monotonic()
    simulation = simulations()
    waited = simulation.start(wait)
    simulation.run(timeout_s=2000)
    assert all(abs(passed - 1000) < 0.01 for passed in waited.result())
    assert time.monotonic() - real < 500        # this thread's clocks stay real


def in_place(function: Callable[[], object]) -> Callable[[], None]:
    def application() -> None:
        try:
            function()
        except Exception:
            return      # a function that hides its errors is reported all the same

    return application


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda: time.sleep(0.5), "time.sleep(0.5)"),
        (lambda: sleep(0.25), "time.sleep(0.25)"),
        (lambda: socket.socket(), "socket.socket"),
        (lambda: socket.create_connection(("127.0.0.1", 9)), "socket."),
        (lambda: threading.Thread(target=print).start(), "threading.Thread.start"),
        (lambda: threading.Event().wait(1), "threading.Condition.wait"),
        (lambda: subprocess.run(["true"], check=False), "a new process"),
    ],
)
def test_a_call_without_a_virtual_form_is_reported(
    simulations: Maker, function: Callable[[], object], named: str
) -> None:
    simulation = simulations()
    simulation.start(in_place(function), name="prices")
    with pytest.raises(SimulationError) as caught:
        simulation.run()
    text = str(caught.value)
    assert text.startswith(f"prices calls {named}"), text
    assert re.search(r" at test_applications\.py:\d+, which does not exist in virtual time", text)


def test_sleeps_may_be_virtual(simulations: Maker) -> None:
    def rest() -> float:
        before = time.monotonic()
        sleep(100)
        return time.monotonic() - before

    simulation = simulations(virtual_sleep=True)
    rested = simulation.start(rest)
    simulation.run(timeout_s=200)
    assert rested.result() == pytest.approx(100)


def test_a_function_that_blocks_elsewhere_is_reported(simulations: Maker) -> None:
    lock = threading.Lock()
    lock.acquire()
    simulation = simulations(hang_s=0.3)
    simulation.start(lambda: lock.acquire(timeout=60), name="locked")
    with pytest.raises(SimulationError, match=r"locked has neither waited .* test_applications.py"):
        simulation.run()
    lock.release()


def test_a_function_that_does_not_end_is_named_with_its_place(simulations: Maker) -> None:
    simulation = two_hosts(simulations)
    simulation.start(receive_in_loop, host="b", name="reader")
    with pytest.raises(penstock.TimeoutExpired) as caught:
        simulation.run()
    assert re.fullmatch(
        r"in application 'reader' at 20\.0000\d\d s", caught.value.__notes__[0]
    )
    simulation = two_hosts(simulations)
    simulation.start(receive_in_loop, host="b", name="reader")
    with pytest.raises(SimulationError, match=r"reader waits at test_applications\.py:\d+"):
        simulation.run(timeout_s=5)


def test_everything_is_put_back(simulations: Maker) -> None:
    before = (time.sleep, sleep, time.monotonic, trio.run, threading.Thread.start)
    simulation = two_hosts(simulations)
    app: App = simulation.start(receive, host="b")
    simulation.run_for(0.5)
    assert (time.sleep, time.monotonic) != (before[0], before[2])
    simulation.close()
    assert (time.sleep, sleep, time.monotonic, trio.run, threading.Thread.start) == before
    assert app.is_killed
    assert not [thread for thread in threading.enumerate() if thread.name == "receive"]


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    """As a user has it: a file beside their own, and the fixture of the plugin."""
    prices, test = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.S | re.M)
    (tmp_path / "prices.py").write_text(prices, encoding="utf-8")
    (tmp_path / "test_prices.py").write_text(test, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout
