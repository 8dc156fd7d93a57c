# SPDX-License-Identifier: Apache-2.0
"""Authentication of TCP control: Check the CURVE keys of clients with the allow-list, and limit the
number of connections.

When a client connects, ZeroMQ calls a handler in this process (the protocol ZAP). The handler
decides whether the client's key may connect. The handler is pyzmq's authenticator. The
authenticator uses the daemon's allow-list, and reads the list again when its file changes. If a key
is removed from the list, the daemon refuses the next request of a client with this key, even on an
open connection. If one key file is unreadable, its key is not authorised; the other keys stay
authorised.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import zmq
import zmq.utils.monitor
from zmq.auth.base import Authenticator

from penstock.config.protocol.keys import CurveKeys, check_public_key, load_public_key
from penstock.config.settings.models import ControlTcpConfig
from penstock.core.errors import ConfigurationError
from penstock.daemon.connections import STRANGERS, Connections, shut

_LOG = logging.getLogger("penstock.daemon")
_DOMAIN: Final = "penstock"
_EVENTS: Final = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED


class AllowList:
    """Public keys of the clients that may connect. The keys are in the ``.key`` files of a
    directory, or in the lines of one file. Each line of the file contains a key, optionally
    followed by a blank and a comment."""

    def __init__(self, path: Path) -> None:
        """:raises ConfigurationError: the list cannot be read, or contains an invalid key."""
        self._path = path
        self._stamp: tuple[Any, ...] = ()
        self._keys: frozenset[str] = frozenset()
        self._stamp = self._check()
        self._keys = self._read()

    def __contains__(self, key: str) -> bool:
        self._refresh()
        return key in self._keys

    def _refresh(self) -> None:
        """Read the list again if it changed. An entry that became unreadable authorises no client.
        If the whole list is missing or unreadable, the last version stays in force."""
        stamp = self._check()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        faults: list[str] = []
        try:
            self._keys = self._read(faults)
        except ConfigurationError as error:
            _LOG.error("%s: the previous allow-list stays in effect", error)
            return
        for fault in faults:
            _LOG.error("%s: this file or line authorises no client key", fault)
        _LOG.info("%s: %d keys may connect", self._path, len(self._keys))

    def _files(self) -> list[Path]:
        return sorted(self._path.glob("*.key")) if self._path.is_dir() else [self._path]

    def _check(self) -> tuple[Any, ...]:
        """Return a value that changes with the content and the permissions of the list."""
        return tuple(_state_of(path) for path in [self._path, *self._files()])

    def _read(self, faults: list[str] | None = None) -> frozenset[str]:
        """The keys.

        :param faults: collects errors of single files or lines, which are then ignored.
        :raises ConfigurationError: a file cannot be read, or a key is invalid.
        """
        found = set()
        for entry in self._entries():
            try:
                found.add(entry())
            except ConfigurationError as error:
                if faults is None:
                    raise
                faults.append(str(error))
        return frozenset(found)

    def _entries(self) -> list[Callable[[], str]]:
        """Yield a function for each key, which reads it."""
        if self._path.is_dir():
            return [partial(load_public_key, path) for path in self._files()]
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(
                f"control_tcp.clients: {self._path}: cannot be read: {error}"
            ) from None
        return [
            partial(check_public_key, line.split()[0], f"{self._path}:{number}")
            for number, line in enumerate(lines, 1)
            if line.split() and not _is_comment(line)
        ]


def _state_of(path: Path) -> tuple[Any, ...]:
    try:
        at = os.stat(path)
    except OSError as error:
        return (str(path), error.errno)
    return (str(path), at.st_mtime_ns, at.st_ctime_ns, at.st_ino, at.st_size)


def _is_comment(line: str) -> bool:
    """Return whether a line is a comment: ``# ...`` with a blank, because ``#`` is a letter of
    Z85."""
    text = line.lstrip()
    return text.startswith("# ") or text == "#"


class _Provider:
    """Credentials provider of pyzmq's authenticator."""

    def __init__(self, gate: CurveGate) -> None:
        self._gate = gate

    def callback(self, _domain: str, key: bytes) -> bool:
        return self._gate.admit(key.decode("ascii", "replace"))


class CurveGate:
    """Adds a TCP address with CURVE authentication to the ROUTER socket of the group service. After
    the object has been created, only one thread may use it."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], router: zmq.Socket[bytes],
        config: ControlTcpConfig,
    ) -> None:
        """Binds ``router``.

        :raises ConfigurationError: the key, the list or the address cannot be used.
        """
        self.router = router
        self._limit = config.connections
        self._connections = Connections()
        self._flooded = False
        self.refused = 0
        try:
            keys = CurveKeys.load(config.secret_key)
            self._allowed = AllowList(Path(config.clients))
        except ConfigurationError:
            router.close()
            raise
        self._authenticator = Authenticator(context, log=_LOG)
        self._authenticator.configure_curve_callback(
            domain=_DOMAIN, credentials_provider=_Provider(self)
        )
        self._authenticator.start()
        router.curve_server = True
        router.zap_domain = _DOMAIN.encode()
        router.curve_publickey = keys.public.encode()
        router.curve_secretkey = keys.secret.encode()
        self._monitor = router.get_monitor_socket(_EVENTS)
        try:
            router.bind(f"tcp://{config.listen}")
        except zmq.ZMQError as error:
            self.close()
            router.close()
            raise ConfigurationError(
                f"control_tcp.listen: cannot listen on {config.listen}: {error.strerror}"
            ) from None
        self.address = str(router.getsockopt_string(zmq.LAST_ENDPOINT))
        self._port = int(self.address.rpartition(":")[2])
        _LOG.info(
            "consumer groups are served on %s with the key %s", self.address, keys.public
        )

    def close(self) -> None:
        """Stop the authentication. Call ``close`` before you close the ROUTER socket."""
        self.router.disable_monitor()
        self._monitor.close()
        self._authenticator.stop()

    @property
    def sockets(self) -> list[Any]:
        """Return the sockets to poll for :meth:`step`."""
        return [self._authenticator.zap_socket, self._monitor]

    def step(self, ready: dict[Any, int]) -> None:
        """Answers ZAP requests, counts connections."""
        if self._monitor in ready:
            self._count()
        zap = self._authenticator.zap_socket
        if zap in ready:
            frames = zap.recv_multipart(zmq.DONTWAIT)
            answering = self._authenticator.handle_zap_message(frames)
            try:
                answering.send(None)    # it never suspends with this provider
            except StopIteration:
                return
            raise AssertionError("the authenticator waits")

    def _count(self) -> None:
        """Process opened and closed connections. Limit the number of connections without a key."""
        while self._monitor.poll(0):
            event = zmq.utils.monitor.recv_monitor_message(self._monitor, zmq.DONTWAIT)
            fd = int(event["value"])
            if event["event"] == zmq.EVENT_DISCONNECTED:
                self._connections.gone(fd)
                continue
            self._connections.accepted(fd)
            if self._connections.strangers > STRANGERS:
                self._end(self._connections.oldest)
        if self._connections.strangers < STRANGERS // 2:
            self._flooded = False

    def _end(self, fd: int) -> None:
        """End the oldest connection without a key; a slow client connects again."""
        shut(fd, self._port)
        self._connections.gone(fd)
        self.refused += 1
        if not self._flooded:
            _LOG.warning(
                "TCP control: %d connections have not shown a key: closing the oldest", STRANGERS
            )
        self._flooded = True

    def heard(self, frames: list[zmq.Frame]) -> None:
        """Note a message over TCP."""
        with contextlib.suppress(zmq.ZMQError):         # every TCP message is reported
            self._connections.heard(int(frames[-1].get(zmq.SRCFD)))

    def admit(self, key: str) -> bool:
        """Return whether a client with the given key may connect now. The client's key must be on
        the allow-list, and the number of connections must be below the limit."""
        if not self.allows(key):
            _LOG.warning("TCP control: refused the key %s, which is not on the allow-list", key)
            self.refused += 1
            return False
        self._count()
        if self._connections.placed >= self._limit:
            _LOG.warning(
                "TCP control: refused the key %s: %d connections are open, which is the limit "
                "(control_tcp.connections)", key, self._limit,
            )
            self.refused += 1
            return False
        self._connections.admitted()
        return True

    def allows(self, key: str) -> bool:
        return key in self._allowed

    @staticmethod
    def key_of(frames: list[zmq.Frame]) -> str:
        """Return the public key of the client that sent a message. If the message arrived over the
        local socket, the result is empty."""
        try:
            return str(frames[-1].get("User-Id"))
        except (zmq.ZMQError, KeyError):
            return ""
