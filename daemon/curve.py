# SPDX-License-Identifier: Apache-2.0
"""The gate of TCP control: CURVE keys, who may come in, and how many at once.

ZeroMQ asks a handler inside the process (ZAP) whether a key may connect; pyzmq's authenticator
answers from the allow-list, which is read again when its file changes.  A key that was taken off
the list is refused with its next request, connected or not.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, Final

import zmq
import zmq.utils.monitor
from zmq.auth.base import Authenticator

from penstock.config.keys import CurveKeys, check_public_key, load_public_key
from penstock.config.models import ControlTcpConfig
from penstock.core.errors import ConfigurationError

_LOG = logging.getLogger("penstock.daemon")
_DOMAIN: Final = "penstock"
_EVENTS: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class AllowList:
    """Public keys in a file (one in each line, what follows a blank is a comment) or in the
    ``.key`` files of a directory."""

    def __init__(self, path: Path) -> None:
        """:raises ConfigurationError: it cannot be read, or holds what is no key."""
        self._path = path
        self._stamp: tuple[Any, ...] = ()
        self._keys: frozenset[str] = frozenset()
        self._stamp = self._look()
        self._keys = self._read()

    def __contains__(self, key: str) -> bool:
        self._refresh()
        return key in self._keys

    def _refresh(self) -> None:
        """A list that cannot be read any more stays as it was last read."""
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys = self._read()
            _LOG.info("%s: %d keys may connect", self._path, len(self._keys))
        except ConfigurationError as error:
            _LOG.error("%s: the allow-list stays as it was", error)

    def _files(self) -> list[Path]:
        return sorted(self._path.glob("*.key")) if self._path.is_dir() else [self._path]

    def _look(self) -> tuple[Any, ...]:
        found = []
        try:
            for path in [self._path, *self._files()]:
                at = os.stat(path)
                found.append((str(path), at.st_mtime_ns, at.st_ino, at.st_size))
        except OSError as error:
            return (error.errno,)
        return tuple(found)

    def _read(self) -> frozenset[str]:
        if self._path.is_dir():
            return frozenset(load_public_key(path) for path in self._files())
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(
                f"control_tcp.clients: {self._path}: cannot be read: {error}"
            ) from None
        keys = set()
        for number, line in enumerate(lines, 1):
            words = line.split()
            if words and not _is_comment(line):
                keys.add(check_public_key(words[0], f"{self._path}:{number}"))
        return frozenset(keys)


def _is_comment(line: str) -> bool:
    """``#`` is a letter of Z85: a comment is ``# ...``, with a blank."""
    text = line.lstrip()
    return text.startswith("# ") or text == "#"


class _Provider:
    """What pyzmq's authenticator asks."""

    def __init__(self, gate: CurveGate) -> None:
        self._gate = gate

    def callback(self, _domain: str, key: bytes) -> bool:
        return self._gate.admit(key.decode("ascii", "replace"))


class CurveGate:
    """The TCP socket and what guards it.  One thread uses it, after it was made."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], router: zmq.Socket[bytes],
        config: ControlTcpConfig,
    ) -> None:
        """Binds ``router``.

        :raises ConfigurationError: the key, the list or the address cannot be used.
        """
        self.router = router
        self._limit = config.connections
        self._connected = 0
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
        _LOG.info("groups are served on %s with the key %s", self.address, keys.public)

    def close(self) -> None:
        """To be called before the router is closed."""
        self.router.disable_monitor()
        self._monitor.close()
        self._authenticator.stop()

    @property
    def sockets(self) -> list[Any]:
        """What to poll for :meth:`step`."""
        return [self._authenticator.zap_socket, self._monitor]

    def step(self, ready: dict[Any, int]) -> None:
        """Answers ZAP requests, counts connections."""
        if self._monitor in ready:
            while self._monitor.poll(0):
                event = zmq.utils.monitor.recv_monitor_message(self._monitor, zmq.DONTWAIT)
                if event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self._connected += 1
                elif self._connected > 0:
                    self._connected -= 1
        zap = self._authenticator.zap_socket
        if zap in ready:
            frames = zap.recv_multipart(zmq.DONTWAIT)
            answering = self._authenticator.handle_zap_message(frames)
            try:
                answering.send(None)    # it awaits nothing with a provider that does not
            except StopIteration:
                return
            raise AssertionError("the authenticator waits")

    def admit(self, key: str) -> bool:
        """May a new connection with this key come in?"""
        if not self.allows(key):
            _LOG.warning("TCP control: refused the key %s, which is not on the allow-list", key)
            self.refused += 1
            return False
        if self._connected >= self._limit:
            _LOG.warning("TCP control: refused the key %s: %d connections", key, self._connected)
            self.refused += 1
            return False
        return True

    def allows(self, key: str) -> bool:
        return key in self._allowed

    @staticmethod
    def key_of(frames: list[zmq.Frame]) -> str:
        """The public key that a message was sent with; empty over the local socket."""
        try:
            return str(frames[-1].get("User-Id"))
        except (zmq.ZMQError, KeyError):
            return ""
