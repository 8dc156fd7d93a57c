# SPDX-License-Identifier: Apache-2.0
"""Pages of 16 and 64 KiB, which AArch64 has: a preloaded library refuses what such a kernel
refuses, and rounds as it does (``support/pages.c``)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.hosts import memory_directory

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "build" / "native" / "release" / "test_pages"
HELLO = """
import penstock

with penstock.connect() as client:
    for channel in ("aeron:ipc", "aeron:udp?endpoint=127.0.0.1:0"):
        receiver = client.add_subscription(channel, 1)
        where = channel
        if "udp" in channel:
            where = "aeron:udp?endpoint=" + receiver.local_addresses[0]
        sender = client.add_publication(where, 1)
        for number in range(2000):
            sender.send(bytes(1000), timeout_s=30)
            assert len(receiver.recv(timeout_s=30)) == 1000
    receiver.poll(lambda message, header: None, checked=True)
print("done")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pages") / "pages.so"
    source = ROOT / "tests" / "support" / "pages.c"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(made),
         str(source), "-ldl"], check=True,
    )
    return made


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-pages-", dir=memory_directory()) as found:
        yield Path(found)


@pytest.mark.parametrize("pages", [4096, 16384, 65536])
def test_a_freed_slot_leaves_its_neighbours(library: Path, pages: int) -> None:
    native = ROOT / "tests" / "native"
    subprocess.run(["make", "-s", "-C", str(native), str(PROGRAM)], check=True)
    done = subprocess.run(
        [str(PROGRAM)], env={**os.environ, "LD_PRELOAD": str(library), "PAGES": str(pages)},
        capture_output=True, text=True, check=False, timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"pages of {pages} bytes" in done.stdout


@pytest.mark.parametrize("pages", [16384, 65536])
def test_a_daemon_and_a_client_run_with_larger_pages(
    library: Path, directory: Path, pages: int
) -> None:
    config = directory / "penstock.toml"
    config.write_text(f"[storage]\npage_bytes = {pages}\n", encoding="utf-8")
    place = directory / "driver"
    env = {**os.environ, "LD_PRELOAD": str(library), "PAGES": str(pages),
           "PENSTOCK_DIR": str(place), "XDG_STATE_HOME": str(directory)}
    command = [sys.executable, "-m", "penstock"]
    up = subprocess.run(
        [*command, "up", "--config", str(config)], env=env, check=False, capture_output=True,
        text=True, timeout=120,
    )
    assert up.returncode == 0, up.stdout + up.stderr
    try:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", HELLO], env=env, check=False,
            capture_output=True, text=True, timeout=120,
        )
    finally:
        down = subprocess.run([*command, "down"], env=env, check=False, capture_output=True)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert down.returncode == 0
