# SPDX-License-Identifier: Apache-2.0
"""The socket for metrics. The daemon binds the socket for metrics when it starts, and starts to
answer HTTP requests when the first connection arrives.

The daemon loads the web server and its libraries when the first connection arrives. While the web
server loads, the first connection waits in the backlog of the socket. The daemon therefore starts
faster. If no program reads the metrics, the daemon also needs less memory.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from penstock.core.errors import ConfigurationError

if TYPE_CHECKING:
    from penstock.core.admin import Cnc
    from penstock.daemon.observe.reader import StatusReader

_LOG = logging.getLogger("penstock.daemon")


def open_listener(listen: str, *, directory: Path, file_mode: int) -> socket.socket:
    """Return a bound socket for the address "unix:PATH" or "host:port". A relative PATH is in the
    daemon's directory.

    :raises ConfigurationError: the address cannot be bound.
    """
    try:
        if listen.startswith("unix:"):
            return _unix_listener(directory / listen.removeprefix("unix:"), file_mode)
        host, _, port = listen.rpartition(":")
        ipv6 = host.startswith("[")
        found = socket.getaddrinfo(
            host.strip("[]"), int(port), socket.AF_INET6 if ipv6 else socket.AF_INET,
            socket.SOCK_STREAM,
        )
        made = socket.socket(found[0][0], socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(found[0][4])
        except OSError:
            made.close()
            raise
        return made
    except OSError as error:
        raise ConfigurationError(
            f"metrics.listen: {listen}: {error.strerror}; choose another address, or \"\" for none"
        ) from error


def _unix_listener(path: Path, file_mode: int) -> socket.socket:
    if path.is_socket():
        path.unlink()
    made = socket.socket(socket.AF_UNIX)
    try:
        made.bind(os.fspath(path))
        path.chmod(file_mode)
    except OSError:
        made.close()
        raise
    return made


async def serve_on_demand(
    listener: socket.socket,
    cnc: Cnc,
    reader: StatusReader,
    healthy: Callable[[], bool],
) -> None:
    """Serve metrics on the listening socket until the task is cancelled. Takes the listener
    over."""
    path = listener.getsockname() if listener.family == socket.AF_UNIX else ""
    try:
        with listener:
            listener.listen()
            listener.setblocking(False)
            await trio.lowlevel.wait_readable(listener)
            try:
                metrics = await trio.to_thread.run_sync(_load)
            except ImportError as error:
                _LOG.error("metrics are not served: %s: install penstock again", error)
                return
            app = metrics.make_app(reader, cnc, healthy)
            await metrics.serve_metrics(app, listener)
    finally:
        if path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def _load() -> Any:
    from penstock.daemon.observe import metrics

    return metrics
