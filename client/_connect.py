# SPDX-License-Identifier: Apache-2.0
"""Connect to this host's daemon, and wait if the daemon is still starting."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from penstock.client._client import Client
from penstock.client._credit_options import CreditsGiven, pool_of_client
from penstock.client._defaults import (
    DEFAULT_REATTACH_S,
    DEFAULT_TIMEOUT_S,
    LEAST_ANSWER_S,
)
from penstock.client._directory import daemon_directory, no_daemon, up_command
from penstock.client._restart import DaemonCallback
from penstock.client._zmq_port import ZmqPort
from penstock.core import client as core
from penstock.core.errors import DaemonGone, DaemonNotRunning, InvalidArgument

RETRY_S: Final = 0.02
_MENTION_S: Final = 1.0
_NAME_CHARS: Final = 95


class Attempt:
    """The state of one call of :func:`connect`, which tries several times to reach the daemon. Only
    one thread at a time may use an :class:`Attempt`."""

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        *,
        name: str = "",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        reattach_timeout_s: float = DEFAULT_REATTACH_S,
        credits: CreditsGiven = None,
        on_daemon: DaemonCallback | None = None,
        on_waiting: Callable[[str], object] | None = None,
        watch: bool = False,
    ) -> None:
        """Check the arguments, which are the same as for :func:`connect`.

        :param watch: True if tasks of an event loop (asyncio or trio) will use the client.
        :param on_waiting: called once with a line of text if no daemon answers within a second.
        """
        if not isinstance(name, str) or len(name) > _NAME_CHARS:
            raise InvalidArgument(
                f"a client's name is text of at most {_NAME_CHARS} characters, not {name!r}"
            )
        if not timeout_s > 0:
            raise InvalidArgument(f"timeout_s must be positive, not {timeout_s}")
        if not reattach_timeout_s >= 0:
            raise InvalidArgument(f"reattach_timeout_s must not be negative: {reattach_timeout_s}")
        self._directory = daemon_directory(directory)
        self._name = name
        self._credits = pool_of_client(credits)
        self._on_daemon = on_daemon
        self._timeout_s = timeout_s
        self._reattach_s = reattach_timeout_s
        self._on_waiting = on_waiting
        self._watch = watch
        self._began = time.monotonic()

    def once(self) -> Client | None:
        """Try once to connect. Return the client; None: no daemon has answered yet, and the
        time-out has not passed.

        :raises DaemonNotRunning: no daemon appeared in time.
        """
        left = max(self._timeout_s - (time.monotonic() - self._began), RETRY_S)
        try:
            port = ZmqPort(
                self._directory,
                name=self._name,
                library_version=core.library_version(),
                timeout_s=left,
                reattach_timeout_s=self._reattach_s,
                watch=self._watch,
            )
        except (DaemonNotRunning, DaemonGone) as error:
            waited = time.monotonic() - self._began
            if waited < self._timeout_s:
                self._mention(waited)
                return None
            if isinstance(error, DaemonGone):
                raise
            raise DaemonNotRunning(
                no_daemon(self._directory, waited_s=self._timeout_s)
            ) from None
        client = Client(
            port, timeout_s=max(self._timeout_s, LEAST_ANSWER_S), name=self._name,
            credits=self._credits,
        )
        client._bell.on_daemon = self._on_daemon
        return client

    def _mention(self, waited_s: float) -> None:
        if self._on_waiting is not None and waited_s >= _MENTION_S:
            self._on_waiting(
                f"waiting for a daemon in {self._directory}, {self._timeout_s:g} s at most: "
                f"start one with '{up_command(self._directory)}'"
            )
            self._on_waiting = None


def connect(
    directory: str | os.PathLike[str] | None = None,
    *,
    name: str = "",
    timeout_s: float = DEFAULT_TIMEOUT_S,
    reattach_timeout_s: float = DEFAULT_REATTACH_S,
    credits: CreditsGiven = None,
    on_daemon: DaemonCallback | None = None,
) -> Client:
    """Connect to this host's daemon, and wait if the daemon is still starting.

    :param directory: the daemon's directory; default ``$PENSTOCK_DIR``, then
        ``/dev/shm/penstock-$USER``.
    :param name: name of the client in the daemon's tools; at most 95 characters.
    :param timeout_s: bounds this call, in seconds. If no daemon runs in the directory, the call
        tries again until this time is over. It also bounds each later exchange with the daemon, to
        at least 10 s.
    :param reattach_timeout_s: how long the client waits for a new daemon after the daemon died, in
        seconds. Meanwhile offers return ``Offer.DAEMON_AWAY``, polls deliver the messages in the
        log, and waiting calls continue to wait. 0: the client ends with its daemon.
    :param credits: a pool for the publishers of all subscriptions of this client: a number of
        messages, ``auto``, or a :class:`Credits`. A subscription with credits of its own is not
        part of it.
    :param on_daemon: called with False when the client notices that the daemon has died, and with
        True when the client is attached to a new one. The call comes from a thread of the client:
        it must return soon, and must not call the client.
    :raises DaemonNotRunning: no daemon appeared in the directory within ``timeout_s``.
    :raises ChannelRefused: this user may not access the daemon; the code is ``permission``.
    :raises VersionMismatch: the daemon has another protocol version.
    :raises TimeoutExpired: the daemon did not answer in time.
    """
    attempt = Attempt(
        directory, name=name, timeout_s=timeout_s, reattach_timeout_s=reattach_timeout_s,
        credits=credits, on_daemon=on_daemon,
    )
    return wait_for(attempt)


def wait_for(attempt: Attempt) -> Client:
    """Try to connect until the daemon answers or the time-out passes. The call blocks this
    thread."""
    while (client := attempt.once()) is None:
        time.sleep(RETRY_S)
    return client
