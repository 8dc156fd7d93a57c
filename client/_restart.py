# SPDX-License-Identifier: Apache-2.0
"""Handle the death of a client's daemon (docs/restart.md): report lost data and sessions, and
connect the client to the next daemon."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from penstock.client._port import Lease
from penstock.core import client as core

if TYPE_CHECKING:
    from penstock.client._client import Client

#: Called with False when the client notices its daemon's death, and with True when the client is
#: attached to the next daemon.
DaemonCallback: TypeAlias = Callable[[bool], object]
_LOG: Final = logging.getLogger("penstock.client")


@attrs.frozen(kw_only=True)
class Gap:
    """A range of stream positions, in bytes. The subscription will never receive the messages
    between the positions of a gap."""

    stream_id: int
    session_id: int
    from_position: int
    """Everything below was handed out."""
    to_position: int | None
    """From here on messages come again; None: the session has ended here, or it is not known."""
    messages: int | None = None
    """How many are missing; None: not known."""


@attrs.frozen(kw_only=True)
class LostSession:
    """A publication's session that ended because its daemon died. The publication continues in a
    new session."""

    session_id: int
    sent_position: int
    """Everything below went out, though perhaps not all of it arrived."""
    position: int
    """Everything below was accepted: what lies between the two positions was never sent."""


class Bell:
    """Receives the callbacks of the driver port and wakes the client's waiting threads. A
    :class:`Bell` refers to its client only weakly, so that Python can destroy a client that the
    application no longer uses."""

    __slots__ = (
        "__weakref__", "_client", "_handle", "_params", "away_ns", "is_away", "on_daemon",
    )

    def __init__(
        self, client: Client, handle: core.ClientHandle, params: core.ClientParams
    ) -> None:
        self._client = weakref.ref(client)
        self._handle = handle
        self._params = params
        #: ``on_daemon=`` of :func:`penstock.connect`.
        self.on_daemon: DaemonCallback | None = None
        #: Whether offers already return DAEMON_AWAY.
        self.is_away = False
        #: CLOCK_MONOTONIC time at which the daemon's death was noticed.
        self.away_ns = 0

    def replace(self, handle: core.ClientHandle, params: core.ClientParams) -> None:
        """After the daemon's restart the core has a new client object, ``handle``. From now on,
        wake the threads that wait for events of ``handle``."""
        self._handle, self._params = handle, params

    def on_notice(self) -> None:
        core.client_wake(self._handle)

    def on_away(self) -> None:
        core.client_set_daemon_away(self._handle, True)
        self.away_ns = time.monotonic_ns()
        self.is_away = True
        core.client_wake(self._handle)
        self._tell(False)

    def on_back(self, lease: Lease, lost: frozenset[int], same: bool) -> None:
        self._attach(lease, lost, same=same)
        self._tell(True)

    def _attach(self, lease: Lease, lost: frozenset[int], *, same: bool) -> None:
        self.is_away = False
        client = self._client()
        if not same:
            if client is not None:
                _in_background(client, None, lease)
            else:
                core.close_fds(*lease.descriptors)
            return
        core.client_replace_fds(self._params, *lease.descriptors)
        if client is not None:
            client._renew_watch()
        if client is not None and lost:
            client._suspend(lost)
            _in_background(client, lost, None)
        core.client_set_daemon_away(self._handle, False)
        core.client_wake(self._handle)

    def on_gone(self) -> None:
        core.client_set_daemon_away(self._handle, True)
        core.client_wake(self._handle)
        if not self.is_away:
            self._tell(False)

    def _tell(self, alive: bool) -> None:
        if self.on_daemon is None:
            return
        try:
            self.on_daemon(alive)
        except Exception:
            _LOG.exception("on_daemon(%s) raised an exception", alive)


def _in_background(client: Client, lost: frozenset[int] | None, lease: Lease | None) -> None:
    """Run in another thread: adding objects again exchanges messages through the port's thread."""
    threading.Thread(
        target=client._recover, args=(lost, lease), name="penstock-recover", daemon=True
    ).start()
