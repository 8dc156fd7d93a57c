# SPDX-License-Identifier: Apache-2.0
"""Processes of the demonstration: two daemons in directories of their own, and their clients."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock.client._inspect import open_counters
from penstock.core.errors import PenstockError


class DemoError(Exception):
    """Something of the demonstration went wrong; one line."""


class Reporter:
    """A process that reports by JSON lines; the newest value of each key is kept."""

    def __init__(self, *argv: str) -> None:
        self.name = argv[1].removeprefix("demo.")
        self.values: dict[str, Any] = {}
        self._silent = False            # nothing more will come
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, *argv], stdout=subprocess.PIPE, text=True,
            process_group=0,    # Ctrl-C is for the demonstration, which ends its processes
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.values.update(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._silent = True
            self._changed.notify_all()

    def wait_for(self, key: str, timeout_s: float) -> Any:
        """The value of a key, once it was reported."""
        with self._changed:
            self._changed.wait_for(
                lambda: key in self.values or "failed" in self.values or self._silent, timeout_s
            )
            if key not in self.values:
                if "failed" in self.values:
                    raise DemoError(f"the {self.name} failed: {self.values['failed']}")
                raise DemoError(f"the {self.name} did not report '{key}'")
            return self.values[key]

    def is_over(self) -> bool:
        """Has it ended?  With success, that is: anything else is an error."""
        status = self._process.poll()
        if status is not None and status != 0:
            if "failed" in self.values:
                raise DemoError(f"the {self.name} failed: {self.values['failed']}")
            raise DemoError(f"the {self.name} ended with status {status}")
        if status is not None:
            self._reader.join(5.0)
        return status is not None

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join(5.0)


class Daemon:
    """A media driver on a directory of its own: one host."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "daemon", "--dir", str(directory), *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            process_group=0,
        )
        self._errors: list[str] = []
        self._drain = threading.Thread(target=self._read, daemon=True)
        self._drain.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        self._errors.extend(self._process.stderr)

    def wait_ready(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while not (self.directory / "lease.sock").exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise DemoError(f"a daemon does not start: {self.last_words()}")
            time.sleep(0.02)

    def counters(self) -> dict[str, int]:
        """System counters by label; empty when they cannot be read."""
        with contextlib.suppress(PenstockError), open_counters(self.directory) as cnc:
            return {c.label.split(":")[0]: c.value for c in cnc.counters() if c.type_id == 0}
        return {}

    def last_words(self) -> str:
        self._drain.join(1.0)
        return " ".join("".join(self._errors[-5:]).split())

    def stop(self, timeout_s: float = 15.0) -> None:
        """SIGTERM; a daemon that does not obey is killed, and that is an error."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise DemoError("a daemon did not end on SIGTERM") from None
        if status != 0:
            raise DemoError(f"a daemon ended with status {status}: {self.last_words()}")


@contextlib.contextmanager
def undisturbed_end() -> Iterator[None]:
    """Whatever ends the block, signals after it are ignored: they would end the cleaning up."""
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def reported(work: Callable[[], None]) -> int:
    """Run the work of a process; report its failure as a value.  Returns the exit status."""
    try:
        work()
    except (PenstockError, OSError) as error:
        print(json.dumps({"failed": " ".join(str(error).split())}), flush=True)
        return 1
    return 0


@contextlib.contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory in shared memory that is gone afterwards, whatever happens."""
    shared = Path("/dev/shm")
    parent = str(shared) if shared.is_dir() else None
    path = Path(tempfile.mkdtemp(prefix="penstock-demo-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def left_behind(directory: Path) -> list[str]:
    """Files that a daemon which ended left in its directory."""
    return [str(p.relative_to(directory)) for p in directory.rglob("*") if not p.is_dir()]
