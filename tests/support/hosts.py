# SPDX-License-Identifier: Apache-2.0
"""A host of a test: a daemon of ours and the processes that use it."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from support.processes import Peer, PeerError

TESTS = Path(__file__).resolve().parent.parent


class Host(Protocol):
    """Whatever runs a media driver: ours or Aeron's."""

    def pub(self, *args: str) -> contextlib.AbstractContextManager[Peer]:
        """A publishing process on this host."""

    def sub(self, *args: str) -> contextlib.AbstractContextManager[Peer]:
        """A receiving process on this host."""


class PenstockHost:
    """Our daemon, and ``support.pub`` and ``support.sub`` as its clients."""

    def __init__(self, directory: Path, *, prefix: Sequence[str] = ()) -> None:
        self.directory = directory
        self._prefix = tuple(prefix)
        self._env = {"PYTHONPATH": str(TESTS)}
        self._daemon: Peer | None = None

    def run(self, *argv: str) -> Peer:
        """A process on this host, by the interpreter that runs the tests."""
        return Peer([sys.executable, *argv], env=self._env, prefix=self._prefix)

    def command(self, *argv: str) -> Peer:
        """The ``penstock`` command on this host."""
        return self.run("-m", "penstock", *argv)

    def pub(self, *args: str) -> Peer:
        return self.run("-m", "support.pub", f"--dir={self.directory}", *args)

    def sub(self, *args: str) -> Peer:
        return self.run("-m", "support.sub", f"--dir={self.directory}", *args)

    def start(self, *args: str, timeout_s: float = 30.0) -> None:
        """Starts the daemon and waits until it takes clients."""
        daemon = self.command("daemon", "--dir", str(self.directory), *args)
        self._daemon = daemon
        deadline = time.monotonic() + timeout_s
        while not (self.directory / "lease.sock").exists():
            if daemon.process.poll() is not None or time.monotonic() > deadline:
                text = daemon.errors()
                self.stop()
                raise PeerError(f"the daemon in {self.directory} does not start:\n{text}")
            time.sleep(0.02)  # no readiness descriptor without a service manager

    def kill(self) -> None:
        """SIGKILL to the daemon."""
        if self._daemon is not None:
            self._daemon.process.kill()
            self._daemon.process.wait()
            self._daemon.stop()
            self._daemon = None

    def stop(self) -> None:
        """SIGTERM to the daemon, and waits."""
        if self._daemon is not None:
            self._daemon.stop()
            self._daemon = None

    def errors(self) -> str:
        """What the daemon wrote to standard error."""
        return self._daemon.errors() if self._daemon is not None else ""


@contextlib.contextmanager
def penstock_host(
    directory: Path, *args: str, prefix: Sequence[str] = ()
) -> Iterator[PenstockHost]:
    """A host whose daemon runs with ``args`` for the length of the block."""
    host = PenstockHost(directory, prefix=prefix)
    host.start(*args)
    try:
        yield host
    except BaseException:
        sys.stderr.write(f"--- daemon in {directory}\n{host.errors()}\n")
        raise
    finally:
        host.stop()


def memory_directory() -> Path:
    """Where directories of drivers are made: shared memory, if there is."""
    shm = Path("/dev/shm")
    return shm if shm.is_dir() and os.access(shm, os.W_OK) else Path("/var/tmp")
