# SPDX-License-Identifier: Apache-2.0
"""Runs with several workers: what is alone is alone, and ports of files do not meet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import attrs
from support import own_network

TESTS = Path(__file__).parents[1]
FILES = ("a", "b", "c", "d")
WORKERS = 3
PROGRAM = """
import json, os, socket, time
import pytest

def note(name, act):
    began = time.monotonic()
    act()
    line = [name, os.getpid(), os.readlink("/proc/thread-self/ns/net"), began, time.monotonic()]
    with open(os.environ["NOTES"], "a") as file:
        file.write(json.dumps(line) + "\\n")

def use_a_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", PORT))
        one.settimeout(0.05)
        with pytest.raises(TimeoutError):
            one.recv(1)

@pytest.mark.parametrize("number", range(3))
def test_beside_others(number):
    note("beside", use_a_port)

@pytest.mark.alone
def test_alone():
    note("alone", use_a_port)
"""


@attrs.frozen
class Note:
    """What a test of the run told of itself."""

    name: str
    worker: int
    network: str
    began_s: float
    ended_s: float


def run(folder: Path, *options: str) -> list[Note]:
    place = folder / "tests" / "loopback"
    place.mkdir(parents=True)
    for number, name in enumerate(FILES):
        port = 40_456 if own_network.is_allowed() else 40_456 + number
        (place / f"test_{name}.py").write_text(f"PORT = {port}\n{PROGRAM}")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    alone: as in the suite\n")
    notes = folder / "notes"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "support.turns",
         "--no-loadscope-reorder", *options, "tests"],
        cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(TESTS), "NOTES": str(notes)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{4 * len(FILES)} passed" in done.stdout
    return [Note(*json.loads(line)) for line in notes.read_text().splitlines()]


def test_workers_have_networks_of_their_own_and_wait_for_what_is_alone(tmp_path: Path) -> None:
    notes = sorted(run(tmp_path, f"--numprocesses={WORKERS}"), key=lambda note: note.began_s)
    assert [note.name for note in notes[:len(FILES)]] == ["alone"] * len(FILES)
    alone = notes[:len(FILES) + 1]
    assert all(first.ended_s <= second.began_s for first, second in pairwise(alone))
    networks = {note.worker: note.network for note in notes}
    if own_network.is_allowed():
        assert len(networks) == len(set(networks.values())) > 1
        assert os.readlink("/proc/thread-self/ns/net") not in networks.values()


def test_one_process_takes_all_in_the_network_that_it_is_in(tmp_path: Path) -> None:
    notes = run(tmp_path, "--numprocesses=0")
    assert {note.network for note in notes} == {os.readlink("/proc/thread-self/ns/net")}


def test_a_worker_finds_the_way_back() -> None:
    program = """
import os
from support import own_network
def here(): return os.readlink("/proc/thread-self/ns/net")
before = here()
own_network.enter()
own = here()
with own_network.machine_network():
    assert here() == before
assert here() == own != before
"""
    if not own_network.is_allowed():
        program = """
from support import own_network
with own_network.machine_network():
    pass
"""
    subprocess.run(
        [sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": str(TESTS)}
    )
