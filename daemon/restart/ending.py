# SPDX-License-Identifier: Apache-2.0
"""End a daemon (docs/restart.md): leave the daemon's streams to the next daemon (hand-over), or
drain the streams.

In a hand-over, the daemon closes its connections to the clients and ends the threads of the data
plane. A hand-over keeps the directory and the journal, so that the next daemon can adopt the
streams. If the daemon has no client and no consumer group at its end, it removes the directory. In
a drain the daemon first sends all unsent data and then ends every stream.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable
from typing import Final

import attrs
import trio

from penstock.config.protocol import codec
from penstock.config.protocol.control import DaemonStopping, Drain, Drained
from penstock.config.settings.models import StopConfig
from penstock.daemon.conductor.snapshot import PublicationSnapshot, Snapshot
from penstock.daemon.conductor.state.machines import PublicationState
from penstock.daemon.leases import LeaseSocket

_LOG = logging.getLogger("penstock.daemon")
_STEP_S: Final = 0.02
_SEND_S: Final = 2.0                    # longest wait for unsent data of departed clients
_CONFIRM_S: Final = 0.5                 # time for retransmits of sent data: several NAK delays
_LEAVE_S: Final = 0.5                   # time for clients to leave before a drain
_MAX_TEXTS: Final = 100

Signals = AsyncIterator[int]


@attrs.define(eq=False, kw_only=True)
class Ending:
    """Ends a daemon by a drain or a hand-over. Only the daemon's trio thread may use an
    :class:`Ending`."""

    snapshot: Callable[[], Snapshot]
    """Of the conductor."""
    notify_clients: Callable[[DaemonStopping], None]
    lose_client: Callable[[int], None]
    unsent_bytes: Callable[[int], int]
    """Of a publication."""
    last: contextlib.ExitStack
    """The owner closes it when the directory is released."""
    _requested: trio.Event = attrs.field(factory=trio.Event)
    _hurry: trio.Event = attrs.field(factory=trio.Event)
    _drain: Drain | None = None
    _requesters: list[socket.socket] = attrs.field(factory=list)

    async def watch_signals(self, signals: Signals, config: StopConfig) -> None:
        """Handle signals. The first SIGTERM or SIGINT starts the shutdown of the daemon. If the
        daemon is draining, a second SIGTERM or SIGINT stops the drain early; the next daemon then
        gets the unsent data."""
        drain = Drain(timeout_ns=config.drain_timeout_ns) if config.drain else None
        async for number in signals:
            if self._requested.is_set():
                _LOG.info("%s: the daemon ends already", signal.Signals(number).name)
                self._hurry.set()
                continue
            _LOG.info(
                "%s: %s", signal.Signals(number).name,
                "handing over" if drain is None else "draining",
            )
            self._drain = drain
            self._requested.set()

    def on_drain(self, connection: socket.socket, request: Drain) -> None:
        """Request a drain on behalf of a process, which gets its answer when the drain has ended.
        After releasing the directory, the daemon closes the connection to this process. If the
        daemon is already handing over its streams, the daemon closes this connection immediately
        and does not drain."""
        connection.setblocking(False)
        if self._requested.is_set() and self._drain is None:
            connection.close()
            return
        _LOG.info("draining, by request")
        if self._drain is not None:     # data is discarded only if both requests allow it
            discard = self._drain.discard and request.discard
            request = attrs.evolve(self._drain, discard=discard)
        self._drain = request
        self._requesters.append(connection)
        self.last.callback(connection.close)
        self._requested.set()

    async def run(self, leases: LeaseSocket) -> str:
        """Wait for the first request to stop the daemon, and execute the request. Return a text
        that lists the clients, groups and unsent data that need a next daemon. If the text is
        empty, the caller can remove the directory."""
        await self._requested.wait()
        leases.stop_listening()
        if self._drain is None:
            return await self._hand_over()
        return await self._end_streams(self._drain, leases)

    # ---- hand over -------------------------------------------------------------------------------

    async def _hand_over(self) -> str:
        self.notify_clients(DaemonStopping())
        if not self._clients() and not self._groups():
            await self._until(lambda: not self._in(PublicationState.DRAINING), _SEND_S)
            await self._until(lambda: not self._in(PublicationState.LINGER), _CONFIRM_S)
        return "; ".join([*self._clients(), *self._groups(), *self._unsent()])

    def _clients(self) -> list[str]:
        return [
            f"client {client.id} '{client.name}' (pid {client.pid})"
            for client in self.snapshot().clients if client.alive and not client.group_id
        ]

    def _groups(self) -> list[str]:
        return [
            f"group {group.name} of stream {group.stream_id} on {group.channel}"
            for group in self.snapshot().groups
        ]

    def _in(self, *states: PublicationState) -> list[PublicationSnapshot]:
        return [
            publication for publication in self.snapshot().publications
            if publication.state in states and not publication.is_ipc
        ]

    def _unsent(self) -> list[str]:
        """Return the data of departed clients that no receiver has yet."""
        return [
            f"{self.unsent_bytes(p.id)} unsent bytes of stream {p.stream_id}, session "
            f"{p.session_id}, on {p.plan.channel}"
            for p in self._in(PublicationState.DRAINING)
        ]

    # ---- drain -----------------------------------------------------------------------------------

    async def _end_streams(self, drain: Drain, leases: LeaseSocket) -> str:
        self.notify_clients(DaemonStopping(drain=True))
        await self._until(lambda: not leases.clients, _LEAVE_S)
        leases.hang_up_clients()
        for client in self.snapshot().clients:
            if not client.group_id:
                self.lose_client(client.id)
        unfinished = (
            PublicationState.ACTIVE, PublicationState.DRAINING, PublicationState.LINGER,
            PublicationState.CLOSING,
        )
        await self._until(lambda: not self._in(*unfinished), drain.timeout_ns / 1e9)
        assert self._drain is not None
        left = [*self._groups(), *self._unsent()]
        discard = self._drain.discard
        texts = [text[:500] for text in left[:_MAX_TEXTS]]
        if len(left) > len(texts):
            texts.append(f"and {len(left) - len(texts)} more")
        for text in texts if discard else []:
            _LOG.warning("drain: discarding %s", text)
        drained = Drained(kept=[] if discard else texts, discarded=texts if discard else [])
        for connection in self._requesters:
            with contextlib.suppress(OSError):      # the daemon did not wait
                connection.send(codec.encode(drained, 1))
        return "" if discard else "; ".join(texts)

    async def _until(self, done: Callable[[], bool], patience_s: float) -> None:
        """Check a condition repeatedly until it is true, ``patience_s`` is over, or a second signal
        arrives."""
        with trio.move_on_after(patience_s):
            while not done() and not self._hurry.is_set():
                with trio.move_on_after(_STEP_S):
                    await self._hurry.wait()
