# SPDX-License-Identifier: Apache-2.0
"""Start and control the processes of a measurement. The measured processes exchange lines of text
with their parent process, and end if the parent dies. The kernel measures the CPU time of each
process."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from penstock.core.errors import PenstockError

_CPU_CLOCK = 2  # CPUCLOCK_SCHED: what the scheduler charged to the process, in nanoseconds


class BenchError(PenstockError):
    """Raised if a measured process has failed; the text contains the output of this process."""


class Process:
    """A process that writes JSON objects to its standard output, one in each line, with the name of
    an event in ``event``."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        prefix: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = " ".join(argv)[:120]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (lives as long as the process)
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        guard = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
        self._process = subprocess.Popen(
            [*prefix, *guard, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **(env or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                value = json.loads(line)
            except ValueError:
                value = None
            if not isinstance(value, dict):
                value = {"event": "text", "text": line.decode(errors="replace")}
            self._lines.put(value)
        self._lines.put(None)

    def expect(self, event: str, timeout_s: float) -> dict[str, Any]:
        """Wait for a line with the event ``event`` in the output of the process, and return its
        JSON object. Earlier lines with other events are skipped.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise self._failure(f"no {event!r} within {timeout_s:g} s") from None
            if line is None:
                raise self._failure(f"ended before {event!r}")
            if line.get("event") == event:
                return line

    def _failure(self, what: str) -> BenchError:
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()[-800:]
        return BenchError(f"{self.name}: {what} (status {self._process.poll()}): {said}")

    def say(self, text: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(text.encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._failure(f"does not hear {text!r}") from None

    def close_input(self) -> None:
        """Close the standard input of the process. It may print more lines before it ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def cpu_ns(self) -> int:
        """Return the processor time that all threads of the process have used so far, ended threads
        included."""
        return time.clock_gettime_ns((~self.pid << 3) | _CPU_CLOCK)

    def stop(self) -> None:
        """End the process: close its input, and if it does not end, send SIGTERM, then SIGKILL."""
        process = self._process
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5.0)
        self._reader.join(5.0)
        if process.stdout is not None:
            process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()
