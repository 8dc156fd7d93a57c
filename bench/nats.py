# SPDX-License-Identifier: Apache-2.0
"""A NATS server of one's own on loopback, with JetStream in memory and its pages of monitoring."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock._bench.processes import BenchError

#: Debian's package puts the program where a user's PATH may not lead.
_PATH: Final = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
_START_S: Final = 20.0


@contextlib.contextmanager
def server() -> Iterator[tuple[str, str]]:
    """Run a server for the duration of the block.  Yields its URL and that of its monitoring.

    :raises BenchError: the server is missing, or does not start; the text has the end of its log.
    """
    program = shutil.which("nats-server", path=_PATH)
    if program is None:
        raise BenchError("the command nats-server is missing (Debian: nats-server)")
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="penstock-nats-", dir="/dev/shm"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        log = folder / "log"
        process = subprocess.Popen(
            [program, "-a", "127.0.0.1", "-p", "-1", "-m", "-1", "-js", "-sd", str(folder / "js"),
             "-l", str(log)],
        )
        stack.callback(_stop, process)
        yield _addresses(process, log)


def _addresses(process: subprocess.Popen[bytes], log: Path) -> tuple[str, str]:
    """Wait until the server listens; return the addresses that its log names."""
    deadline = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < deadline:
        text = log.read_text() if log.exists() else ""
        clients = re.search(r"for client connections on ([\d.:]+)", text)
        pages = re.search(r"http monitor on ([\d.:]+)", text)
        if clients and pages and "Server is ready" in text:
            return f"nats://{clients[1]}", f"http://{pages[1]}"
        time.sleep(0.02)
    text = log.read_text() if log.exists() else ""
    raise BenchError(f"the NATS server does not start:\n{text[-2000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
