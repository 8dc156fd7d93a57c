# SPDX-License-Identifier: Apache-2.0
"""A host of a test: a daemon of ours and the processes that use it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from support.patience import Patience
from support.processes import Peer, PeerError

TESTS = Path(__file__).resolve().parent.parent


class Host(Protocol):
    """Whatever runs a media driver: ours or Aeron's."""

    def pub(self, *args: str) -> contextlib.AbstractContextManager[Peer]:
        """A publishing process on this host."""

    def sub(self, *args: str) -> contextlib.AbstractContextManager[Peer]:
        """A receiving process on this host."""


class _Readiness:
    """Hears a daemon say that it is ready, as a service manager does."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-ready-")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = f"{self._folder.name}/notify"
        self._socket.bind(path)
        self.env = {"NOTIFY_SOCKET": path}

    def __enter__(self) -> _Readiness:
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()
        self._folder.cleanup()

    def wait(self, daemon: Peer, timeout_s: float) -> bool:
        """False when it ended, or said nothing in time."""
        self._socket.settimeout(0.1)
        patience = Patience(timeout_s)
        while not patience.is_over and daemon.process.poll() is None:
            with contextlib.suppress(TimeoutError):
                if b"READY=1" in self._socket.recv(4096):
                    return True
        return False


_CPU_CLOCK = 2                          # of a process: clock_getcpuclockid(3)


class PenstockHost:
    """Our daemon, and ``support.pub`` and ``support.sub`` as its clients."""

    def __init__(self, directory: Path, *, prefix: Sequence[str] = ()) -> None:
        self.directory = directory
        self._prefix = tuple(prefix)
        self._env = {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent / "examples")])}
        self._daemon: Peer | None = None
        self.last_errors = ""
        """What the last daemon that ended by itself wrote to standard error."""

    def run(self, *argv: str, env: Mapping[str, str] | None = None) -> Peer:
        """A process on this host, by the interpreter that runs the tests."""
        return Peer(
            [sys.executable, *argv], env={**self._env, **(env or {})}, prefix=self._prefix
        )

    def command(self, *argv: str) -> Peer:
        """The ``penstock`` command on this host."""
        return self.run("-m", "penstock", *argv)

    def pub(self, *args: str) -> Peer:
        return self.run("-m", "support.pub", f"--dir={self.directory}", *args)

    def sub(self, *args: str) -> Peer:
        return self.run("-m", "support.sub", f"--dir={self.directory}", *args)

    def start(self, *args: str, timeout_s: float = 30.0) -> None:
        """Starts the daemon and waits until it takes clients."""
        with _Readiness() as readiness:
            daemon = self.run(
                "-m", "penstock", "daemon", "--dir", str(self.directory), *args,
                env=readiness.env,
            )  # fmt: skip
            self._daemon = daemon
            if not readiness.wait(daemon, timeout_s):
                text = daemon.errors()
                self.stop()
                raise PeerError(f"the daemon in {self.directory} does not start:\n{text}")

    @property
    def pid(self) -> int:
        """Of the running daemon."""
        assert self._daemon is not None
        return self._daemon.process.pid

    def is_running(self) -> bool:
        """Whether the daemon's process has not ended."""
        return self._daemon is not None and self._daemon.process.poll() is None

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

    def end(self, timeout_s: float = 30.0) -> int:
        """SIGTERM to the daemon; its exit status once it has ended by itself."""
        assert self._daemon is not None
        self._daemon.signal(signal.SIGTERM)
        return self.wait_end(timeout_s)

    def wait_end(self, timeout_s: float = 30.0) -> int:
        """The daemon's exit status once it has ended by itself."""
        assert self._daemon is not None
        status = self._daemon.finish(timeout_s)
        self.last_errors = self._daemon.errors()
        self.stop()
        return status

    def drain(self, *args: str, timeout_s: float = 60.0) -> tuple[int, str]:
        """``penstock drain``: its exit status, and what it wrote to standard error."""
        with self.command("drain", "--dir", str(self.directory), *args) as drain:
            status = drain.finish(timeout_s)
            text = drain.errors()
        if self._daemon is not None and status in (0, 1):
            assert self._daemon.finish(timeout_s) == 0
            self.stop()
        return status, text

    def cpu_s(self) -> float:
        """Processor time of the running daemon so far."""
        return time.clock_gettime((~self.pid << 3) | _CPU_CLOCK)

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
