# SPDX-License-Identifier: Apache-2.0
"""Five readers in processes of their own, of which one is stopped with SIGSTOP at random points,
also in the middle of a copy: no reader ever gets a message with a wrong CRC."""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock
from loopback.conftest import NewHost
from loopback.streams import PASSING, TIMEOUT_S, Patience

STREAM = 1001
COUNT = 40_000
READERS = 5
_HERE = Path(__file__).parent


def seed_of_this_commit() -> int:
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=_HERE, capture_output=True, text=True, check=False,
    )
    return int(found.stdout.strip() or "1", 16) % 2**32


def message_of(rng: random.Random, index: int) -> bytes:
    body = struct.pack("<Q", index) + bytes([index % 251]) * rng.randrange(20, 1200)
    return struct.pack("<I", zlib.crc32(body)) + body


def reader(directory: Path, channel: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(_HERE / "crc_reader.py"), str(directory), channel, str(STREAM),
         str(COUNT)],
        stdout=subprocess.PIPE, text=True,
    )


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


class Stopper:
    """Stops and continues a process at random numbers of messages."""

    def __init__(self, rng: random.Random, pid: int) -> None:
        self._rng = rng
        self._pid = pid
        self._stopped = False
        self._next = 1000
        self.stops = 0

    def at(self, index: int) -> None:
        if index < self._next:
            return
        self._stopped = not self._stopped
        os.kill(self._pid, signal.SIGSTOP if self._stopped else signal.SIGCONT)
        self.stops += self._stopped
        self._next = index + self._rng.randrange(1, 700)

    def end(self) -> None:
        os.kill(self._pid, signal.SIGCONT)


def publish(publication: penstock.Publication, rng: random.Random, stopper: Stopper) -> None:
    for index in range(COUNT):
        stopper.at(index)
        message = message_of(rng, index)
        patience = Patience(TIMEOUT_S)
        while (code := publication.offer(message)) < 0:
            assert code in PASSING, code
            assert not patience.is_over, f"message {index} is refused"


@pytest.mark.parametrize("policy", ["independent", "drop-oldest|ps-sub-depth=8k"])
@pytest.mark.parametrize("medium", ["ipc", "unicast"])
def test_a_reader_stopped_anywhere_gets_no_torn_message(
    new_host: NewHost, port: Callable[[], int], medium: str, policy: str
) -> None:
    channel = {
        "ipc": "aeron:ipc?term-length=64k",
        "unicast": f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k|rcv-wnd=32k",
    }[medium]
    seed = seed_of_this_commit()
    rng = random.Random(f"{seed} {medium} {policy}")
    host = new_host()
    channels = [f"{channel}|ps-sub-policy={policy}", *[channel] * (READERS - 1)]
    with (
        penstock.connect(host.directory) as client,
        client.add_publication(channel, STREAM) as publication,
    ):
        processes = [reader(host.directory, its) for its in channels]
        try:
            assert [line_of(process) for process in processes] == ["connected\n"] * READERS
            stopper = Stopper(rng, processes[0].pid)
            try:
                publish(publication, rng, stopper)
            finally:
                stopper.end()
            found: list[dict[str, Any]] = [json.loads(line_of(process)) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.communicate()
    victim, *others = found
    told = f"seed {seed}: {found}"
    assert all(not counts["wrong"] for counts in found), told
    assert victim["delivered"] + victim["missed"] == COUNT, told
    assert victim["uncounted"] == 0, told
    assert victim["missed"] > 0 < stopper.stops, told
    assert [(counts["delivered"], counts["gaps"]) for counts in others] \
        == [(COUNT, 0)] * (READERS - 1), told
