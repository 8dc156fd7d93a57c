# SPDX-License-Identifier: Apache-2.0
"""The status is read in a worker thread; the conductor's thread copies registrations in slices."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import trio

from penstock.config.protocol import codec
from penstock.config.protocol.control import Failure, Status
from penstock.core.driver_types import ObjectKind
from penstock.daemon.observe import reader as module
from penstock.daemon.observe.reader import StatusReader, encoded_status
from penstock.daemon.observe.status import DaemonFacts, DaemonStatus
from penstock.sim.core import Link
from penstock.sim.scenario import PublisherScript, Scenario
from penstock.sim.world import World
from penstock.sim.world.host import Host

STREAMS = 40


@pytest.fixture
def host() -> Iterator[Host]:
    """A simulated host with 40 publications."""
    script = Scenario(
        name="many", hosts=1, link=Link(), subscribers=(),
        publishers=tuple(
            PublisherScript(
                host=0, channel="aeron:ipc?term-length=64k", stream_id=1 + number, count=1,
            )
            for number in range(STREAMS)
        ),
        limit_ns=10**9,
    )
    with World(script, seed=1) as world:
        world.run_until(50_000_000)
        yield world.hosts[0]


@pytest.fixture
def reader(host: Host) -> StatusReader:
    facts = DaemonFacts(
        version="0", pid=1, directory="", daemon_id=1, epoch=1, threading="invoker", start_ns=0
    )
    return StatusReader(
        facts, host.conductor, host.driver, host._cnc, host._shared,
        strategies=host._executor.strategies, logs=host._executor.logs, malformed=lambda: 0,
    )


def test_a_worker_thread_reads_the_status(reader: StatusReader) -> None:
    def use(status: DaemonStatus) -> tuple[int, int]:
        return threading.get_ident(), len(status.publications)

    thread, found = trio.run(reader.read, use)
    assert thread != threading.get_ident()
    assert found == STREAMS


def test_other_tasks_run_between_slices(
    reader: StatusReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 40 publications ten are copied at a time."""
    monkeypatch.setattr(module, "OBJECTS", 10)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async def main() -> int:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            snapshot = await reader._registrations()
            nursery.cancel_scope.cancel()
            return len(snapshot.publications)

    assert trio.run(main) == STREAMS
    assert turns >= STREAMS // 10


def test_a_snapshot_in_slices_leaves_out_what_ends_in_a_pause(host: Host) -> None:
    slices = host.conductor.snapshot_in_slices(10)
    next(slices)                                        # a pause among the 40 clients
    state = host.conductor._state
    taken = [state.publications.pop(number) for number in list(state.publications)[:20]]
    found = None
    try:
        while True:
            next(slices)
    except StopIteration as end:
        found = end.value
    state.publications.update({publication.id: publication for publication in taken})
    assert len(found.publications) == STREAMS - len(taken)


def test_a_publication_that_ends_during_the_reading_is_left_out(
    host: Host, reader: StatusReader
) -> None:
    gone = next(iter(host.driver._publications))
    handle = host.driver._publications.pop(gone)
    found = trio.run(reader.read, lambda status: status.publications)
    host.driver._publications[gone] = handle
    assert gone not in {row.publication_id for row in found}
    assert len(found) == STREAMS - 1


def test_a_slot_of_another_publication_is_not_read_as_this_ones(
    host: Host, reader: StatusReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slot was freed and assigned again between the snapshot and the look."""
    first = next(iter(host.driver._publications))
    slot = host.conductor._state.publications[first].slot
    monkeypatch.setattr(
        type(host._shared), "slot_id", lambda self, kind, index: 0 if index == slot else
        next(p.id for p in host.conductor._state.publications.values() if p.slot == index),
    )
    found = trio.run(reader.read, lambda status: status.publications)
    assert first not in {row.publication_id for row in found}


def test_an_object_is_not_freed_while_a_thread_reads_it(host: Host) -> None:
    """The conductor's thread waits for the reader to leave the object."""
    driver, lock = host.driver, threading.Lock()
    first = next(iter(driver._publications))
    handle, native = driver._publications[first], driver._lib
    waits, freed = threading.Event(), threading.Event()

    class Guard:
        def __enter__(self) -> None:
            waits.set()
            lock.acquire()

        def __exit__(self, *reason: object) -> None:
            lock.release()

    class Watched:
        def __getattr__(self, name: str) -> object:
            return lambda *arguments: freed.set()

    guard, driver._guard = driver._guard, Guard()       # type: ignore[misc, assignment]
    driver._lib = Watched()                             # type: ignore[assignment]
    with lock:                                          # as while a thread reads
        thread = threading.Thread(target=driver.destroy, args=(ObjectKind.PUBLICATION, first))
        thread.start()
        assert waits.wait(60)
        assert not freed.is_set()
        assert first in driver._publications
    thread.join()
    assert freed.is_set()
    driver._lib, driver._guard = native, guard          # type: ignore[misc]
    driver._publications[first] = handle


def test_one_publication_is_read_alone(host: Host, reader: StatusReader) -> None:
    first = next(iter(host.driver._publications))
    row = trio.run(reader.publication, first)
    assert row is not None
    assert (row["publication_id"], row["channel"]) == (first, "aeron:ipc?term-length=64k")
    assert trio.run(reader.publication, 1) is None


def test_a_status_that_is_too_long_is_a_failure(
    reader: StatusReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = trio.run(reader.read, lambda status: encoded_status(status, 9))
    number, message = codec.decode(reply)
    assert number == 9
    assert isinstance(message, Status)
    monkeypatch.setattr(codec, "MAX_STATUS_BYTES", 1000)
    reply = trio.run(reader.read, lambda status: encoded_status(status, 9))
    assert isinstance(codec.decode(reply)[1], Failure)
