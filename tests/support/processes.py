# SPDX-License-Identifier: Apache-2.0
"""Processes that report by JSON lines: started, waited for, and gone when the test is."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from support.patience import Patience

DEFAULT_TIMEOUT_S = 60.0


class PeerError(AssertionError):
    """A process did not say what was expected; the text carries its output."""


class Peer:
    """A process whose standard output is JSON objects, one a line, each with an ``event``."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        # Lives as long as the process.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._seen: list[dict[str, Any]] = []
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._text: list[bytes] = []
        self.name = " ".join(argv[-4:])
        self.process = subprocess.Popen(
            [*prefix, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._text.append(line)
            try:
                value = json.loads(line)
            except ValueError:
                value = {"event": "text", "text": line.decode(errors="replace")}
            self._lines.put(value if isinstance(value, dict) else {"event": "text", "text": value})
        self._lines.put(None)

    def errors(self) -> str:
        """What it wrote to standard error so far."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def output(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> str:
        """All that it writes to standard output, once it has ended."""
        self._reader.join(timeout_s)
        if self._reader.is_alive():
            raise self._fail(f"not finished after {timeout_s} s")
        return b"".join(self._text).decode()

    def _fail(self, what: str) -> PeerError:
        code = self.process.poll()
        return PeerError(
            f"{self.name}: {what}; exit status {code}; said {self._seen[-5:]}\n{self.errors()}"
        )

    def next(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> dict[str, Any]:
        """The next line."""
        return self._next(Patience(timeout_s), timeout_s)

    def _next(self, patience: Patience, timeout_s: float) -> dict[str, Any]:
        while True:
            try:
                line = self._lines.get(timeout=min(1.0, patience.left_s))
                break
            except queue.Empty:
                if patience.is_over:
                    raise self._fail(f"silent for {timeout_s} s") from None
        if line is None:
            raise self._fail("ended")
        self._seen.append(line)
        return line

    def wait(self, event: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> dict[str, Any]:
        """Reads on until the event; lines before it are passed over."""
        patience = Patience(timeout_s)
        while True:
            line = self._next(patience, timeout_s)
            if line.get("event") == event:
                return line
            if line.get("event") == "timeout":
                raise self._fail(f"gave up before {event!r}")

    def newest(self, event: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> dict[str, Any]:
        """The next such event behind all that it has said already."""
        for _ in range(self._lines.qsize()):
            self.next(timeout_s)
        return self.wait(event, timeout_s)

    def say(self, text: str = "\n") -> None:
        """Writes to its standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def finish(self, timeout_s: float = DEFAULT_TIMEOUT_S) -> int:
        """Ends its standard input and waits for its own end."""
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()
        patience = Patience(timeout_s)
        while True:
            try:
                return self.process.wait(min(1.0, patience.left_s))
            except subprocess.TimeoutExpired:
                if patience.is_over:
                    raise self._fail("does not end") from None

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process alone."""
        self.process.send_signal(number)

    def stop(self) -> None:
        """SIGTERM to its group, then SIGKILL: nothing of it is left."""
        for number, patience_s in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
            if self.process.poll() is not None:
                break
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(patience_s)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        self._reader.join(timeout=5.0)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            sys.stderr.write(f"--- {self.name}\n{self.errors()}\n")
        self.stop()
