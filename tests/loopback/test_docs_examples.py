# SPDX-License-Identifier: Apache-2.0
"""The Python examples of the guide run as they stand, each in an interpreter of its own, against a
real daemon."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.hosts import PenstockHost

import penstock

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (
    "../README.md", "getting-started.md", "client.md", "consumer-groups.md", "restart.md",
    "loss-recovery.md", "flow-control.md", "operating.md", "request-reply.md",
    "typed-streams.md", "back-pressure.md", "congestion-control.md", "relay.md",
    "credits.md",
)
TIMEOUT_S = 30.0


def examples() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = (DOCS / page).read_text(encoding="utf-8")
        page = page.removeprefix("../")
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        found += [
            (f"{page}-{number}", block) for number, block in enumerate(blocks, 1)
            if not block.startswith("--8<--")       # a file of examples/, with a test of its own
        ]
    return found


EXAMPLES = examples()
# Serves for ever; test_the_program_that_only_serves_answers runs it.
ENDLESS = {"request-reply.md-2"}


def test_the_pages_have_examples() -> None:
    assert len(EXAMPLES) >= 14


@pytest.mark.parametrize(
    "source", [pytest.param(text, id=name) for name, text in EXAMPLES if name not in ENDLESS]
)
def test_the_example_runs(host: PenstockHost, source: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source], capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False, env={**os.environ, "PENSTOCK_DIR": str(host.directory)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    notified = re.findall(r"print\(.*# (b'.*')$", source, re.MULTILINE)     # what it says it prints
    assert done.stdout.splitlines() == notified or not notified


def test_the_program_that_only_serves_answers(host: PenstockHost) -> None:
    (source,) = (text for name, text in EXAMPLES if name in ENDLESS)
    with penstock.connect(host.directory) as client, client.requester("aeron:ipc", 10) as requester:
        program = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", source], stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PENSTOCK_DIR": str(host.directory)},
        )
        try:
            assert requester.request(b"hello", timeout_s=TIMEOUT_S) == b"HELLO"
        finally:
            program.send_signal(signal.SIGINT)
            _, errors = program.communicate(timeout=TIMEOUT_S)
    assert errors.splitlines()[-1:] in ([], ["KeyboardInterrupt"])
