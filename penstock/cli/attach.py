# SPDX-License-Identifier: Apache-2.0
"""``penstock attach`` exchanges control messages with the daemon for a C program
(``capi/penstock_session.h``).

The C library starts ``penstock attach`` with a socket at descriptor 3, over which the library and
the command exchange lines of text. ``penstock attach`` ends when the C program closes the socket or
dies. When the command ends, its connection to the daemon ends, and the daemon removes the client of
the C program.
"""

from __future__ import annotations

import array
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from penstock.client._defaults import DEFAULT_TIMEOUT_S
from penstock.client._directory import daemon_directory
from penstock.client._port import Lease
from penstock.client._zmq_port import ZmqPort
from penstock.config.protocol import control
from penstock.core import client as core
from penstock.core.errors import PenstockError

_FD: Final = 3
_LINE_BYTES: Final = 8192
#: Errors that end one request; the C program gets the text.
_REFUSALS: Final = (PenstockError, ValueError, OSError)


class _Helper:
    """Answers requests on the calling thread; the port's thread forwards its notices."""

    def __init__(self, line: socket.socket, port: ZmqPort) -> None:
        self._line = line
        self._port = port
        self._subscriptions: set[int] = set()
        self._lock = threading.Lock()
        lease = port.lease
        self._send(
            f"h {lease.client_id} {lease.client_slot} {lease.directory}",
            lease.sender_wake_fd, lease.receiver_wake_fd,
        )
        self._handle = core.client_open(
            core.ClientParams(
                directory=str(lease.directory), client_id=lease.client_id,
                client_slot=lease.client_slot, sender_wake_fd=lease.sender_wake_fd,
                receiver_wake_fd=lease.receiver_wake_fd,
            )
        )
        port.listen(self)

    def _send(self, text: str, *fds: int) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self._line.sendmsg([text.encode()], rights)

    # ---- from the daemon -------------------------------------------------------------------------

    def on_notice(self) -> None:
        """Send the daemon's notices about new and ended images to the C program, and wake the
        program if it waits."""
        with self._lock:
            for registration_id in self._subscriptions:
                notices = self._port.notices(registration_id)
                while notices:
                    self._forward(notices.popleft())
        core.client_wake(self._handle)

    def _forward(self, notice: Any) -> None:
        if isinstance(notice, control.ImageAvailable):
            self._send(
                f"i {notice.subscription_id} {notice.correlation_id} "
                f"{notice.position_counter_id} {notice.subscriber_slot} {notice.image_slot} "
                f"{notice.publication_slot} {notice.isolation} {notice.depth_bytes} "
                f"{notice.join_position} {notice.join_ordinal} "
                f"{notice.log_path}"
            )
        elif isinstance(notice, control.ImageUnavailable):
            self._send(f"u {notice.subscription_id} {notice.correlation_id}")

    def on_away(self) -> None:
        """Do nothing: when its daemon has died, ``penstock attach`` does not wait for a new
        daemon."""

    def on_back(self, lease: Lease, lost: frozenset[int], same: bool) -> None:
        """See :meth:`on_away`."""

    def on_gone(self) -> None:
        """The daemon died."""
        self._send("g the daemon is gone")
        core.client_wake(self._handle)

    # ---- from the C program ----------------------------------------------------------------------

    def serve(self) -> None:
        """Answer requests of the C program until it closes its socket."""
        while data := self._line.recv(_LINE_BYTES):
            try:
                self._answer(data.decode())
            except _REFUSALS as error:
                self._send("e " + " ".join(str(error).split()))

    def _answer(self, text: str) -> None:
        kind, flag, rest = text.split(" ", 2)
        if kind == "R":
            self._remove(int(rest), subscription=flag == "1")
            return self._send("d")
        stream_id, channel = rest.split(" ", 1)
        if kind == "P":
            ready = self._port.add_publication(
                control.AddPublication(
                    channel=channel, stream_id=int(stream_id), exclusive=flag == "1"
                ),
                DEFAULT_TIMEOUT_S,
            )
            reserves_alone = ready.exclusive and not ready.shared_log
            return self._send(
                f"p {ready.registration_id} {ready.publication_slot} {ready.limit_counter_id} "
                f"{ready.max_message_bytes} {int(reserves_alone)} {ready.log_path}"
            )
        made = self._port.add_subscription(
            control.AddSubscription(channel=channel, stream_id=int(stream_id)), DEFAULT_TIMEOUT_S
        )
        self._send(f"s {made.registration_id}")
        with self._lock:
            self._subscriptions.add(made.registration_id)
        self.on_notice()        # images that were there already
        return None

    def _remove(self, registration_id: int, *, subscription: bool) -> None:
        kind: Callable[..., Any] = (
            control.RemoveSubscription if subscription else control.RemovePublication
        )
        with self._lock:
            self._subscriptions.discard(registration_id)
        self._port.perform(kind(registration_id=registration_id), DEFAULT_TIMEOUT_S)
        self._port.forget(registration_id)


@click.command("attach")
@click.option("--dir", "directory", metavar="DIR", type=click.Path(path_type=Path),
              help="The daemon's directory.")
@click.option("--name", metavar="NAME", default="C", show_default=True,
              help="Name that tools show.")
def command(directory: Path | None, name: str) -> None:
    """Connect one C program to the daemon; only libpenstock starts it."""
    try:
        line = socket.socket(fileno=_FD)
    except OSError:
        raise click.ClickException("only libpenstock starts this command") from None
    with line:
        os.set_inheritable(_FD, False)
        try:
            port = ZmqPort(
                daemon_directory(directory), name=name, library_version=core.library_version(),
                timeout_s=DEFAULT_TIMEOUT_S,
            )
        except _REFUSALS as error:
            line.send(("e " + " ".join(str(error).split())).encode())
            return
        try:
            _Helper(line, port).serve()
        except OSError:
            pass        # the C program died
        finally:
            port.close()
