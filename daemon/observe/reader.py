# SPDX-License-Identifier: Apache-2.0
"""Read the state of all objects in a worker thread.

The conductor's thread copies the list of objects, with pauses in which it serves clients. A worker
thread then reads the state of each listed object from shared memory. The worker thread also creates
the result: an encoded reply, a page or a sample. Because a worker thread reads the state, even a
status report of 1,000 streams does not delay the requests of clients.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import attrs
import trio

from penstock.config.protocol import codec
from penstock.config.protocol.control import ControlError, Failure, Status
from penstock.core.admin import Cnc, Shared
from penstock.core.driver import Driver
from penstock.daemon.conductor.conductor import Conductor
from penstock.daemon.conductor.snapshot import Snapshot
from penstock.daemon.groups.logs import GroupLogs
from penstock.daemon.groups.status import GroupStatus, group_status
from penstock.daemon.observe.samples import sample
from penstock.daemon.observe.status import (
    DaemonFacts,
    DaemonStatus,
    PublicationStatus,
    publication_status,
    take,
    to_dict,
)
from penstock.daemon.strategies import StrategyHost

OBJECTS: Final = 64
"""Registrations that the conductor's thread copies between two looks at other tasks: 0.5 ms."""

_Made = TypeVar("_Made")


def encoded_status(found: DaemonStatus, correlation_id: int) -> bytes:
    """Return the encoded reply to GetStatus. If the encoded status is too long for a control
    message, the reply is a Failure."""
    try:
        return codec.encode(Status(snapshot=to_dict(found)), correlation_id)
    except ControlError as error:
        return codec.encode(Failure(code="internal", message=str(error)[:500]), correlation_id)


class StatusReader:
    """Reads the daemon's status. The conductor's thread owns the status reader. At most one worker
    thread at a time reads a status."""

    def __init__(
        self, facts: DaemonFacts, conductor: Conductor, driver: Driver, cnc: Cnc, shared: Shared,
        *, strategies: StrategyHost, logs: GroupLogs, malformed: Callable[[], int],
    ) -> None:
        self._facts = facts
        self._conductor = conductor
        self._driver = driver
        self._cnc = cnc
        self._shared = shared
        self._strategies = strategies
        self._logs = logs
        self._malformed = malformed
        self._limiter = trio.CapacityLimiter(1)

    async def read(self, use: Callable[[DaemonStatus], _Made], *, peers: bool = True) -> _Made:
        """Read the daemon's status in a worker thread, call ``use(status)`` in the same thread, and
        return the result of this call.

        :param peers: whether to read the receivers of each publication too.
        """
        async with self._limiter:
            snapshot = await self._registrations()
            groups = await self._groups(snapshot)
            malformed = self._malformed()

            def work() -> _Made:
                return use(take(
                    self._facts, snapshot, self._driver, self._cnc, self._shared,
                    now_ns=time.monotonic_ns(), malformed=malformed,
                    strategies=self._strategies, groups=groups, peers=peers,
                ))

            return await trio.to_thread.run_sync(work)

    async def publication(self, publication_id: int) -> dict[str, Any] | None:
        """Return the status of one publication as plain data, or None if no publication has this
        id."""
        found = self._conductor.publication_snapshot(publication_id)
        if found is None:
            return None
        awaited = self._conductor.awaited_clients()

        def work() -> PublicationStatus | None:
            return publication_status(
                found, self._driver, self._shared, counter=self._cnc.counter,
                now_ns=time.monotonic_ns(), running=self._strategies.get(found.id),
                awaited=awaited,
            )

        async with self._limiter:
            row = await trio.to_thread.run_sync(work)
        return None if row is None else attrs.asdict(row)

    async def sample(self, now_ns: int) -> dict[str, Any]:
        """Return the fields of the event ``sample`` in a trace."""
        async with self._limiter:
            snapshot = await self._registrations()

            def work() -> dict[str, Any]:
                return sample(snapshot, self._driver, self._shared, self._cnc, now_ns=now_ns)

            return await trio.to_thread.run_sync(work)

    async def _registrations(self) -> Snapshot:
        slices = self._conductor.snapshot_in_slices(OBJECTS)
        while True:
            try:
                next(slices)
            except StopIteration as end:
                found: Snapshot = end.value
                return found
            await trio.lowlevel.checkpoint()

    async def _groups(self, snapshot: Snapshot) -> list[GroupStatus]:
        """Only the conductor's thread may use the logs of groups."""
        found = []
        for group in snapshot.groups:
            found.append(group_status(group, self._logs, now_ns=time.monotonic_ns()))
            await trio.lowlevel.checkpoint()
        return found
