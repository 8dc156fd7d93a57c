# SPDX-License-Identifier: Apache-2.0
"""The programs that the page compares run, print the same, and are those of the page."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from support.hosts import PenstockHost
from support.not_run import not_run

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("compare", ROOT / "tools" / "compare.py")
assert _spec is not None
assert _spec.loader is not None
compare = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(compare)

PRINTS = {
    "hello": "hello\n", "million": "1000000 499999500000\n", "request_reply": "10.5\nKeyError\n",
    "fan_out": "['to all', 'to all', 'to all']\n", "monitoring": "connected: True\n",
    "in_asyncio": "45\n",
}
CULPRITS = {
    "penstock": "held by slow reader\n", "pyzmq": "held by unknown\n", "zenoh": "held by unknown\n",
}


@pytest.fixture(scope="module")
def peers() -> None:
    """Install zenoh where the benchmarks have it: pinned, and apart from the tests' packages."""
    done = subprocess.run(
        ["make", "-s", "build/bench/site/.installed"], cwd=ROOT, check=False, capture_output=True,
        text=True, timeout=300,
    )
    if done.returncode != 0:
        not_run(f"zenoh cannot be installed: {done.stderr[-300:]}")


@pytest.mark.parametrize("task", compare.TASKS)
@pytest.mark.parametrize("library", compare.LIBRARIES)
def test_a_program_prints_what_it_should(
    host: PenstockHost, peers: None, library: str, task: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(compare.program(library, task))],
        capture_output=True, text=True, timeout=120, check=False,
        env=compare.environment(PENSTOCK_DIR=str(host.directory)),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (PRINTS.get(task) or CULPRITS[library])
    assert done.stderr == ""


def test_the_page_shows_these_programs() -> None:
    """After a change of a program: python tools/compare.py."""
    assert compare.PAGE.read_text(encoding="utf-8") == compare.page()


def test_statements_are_counted_in_the_syntax_tree(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text('"""Text."""\nimport os\nif os:\n    a = 1; b = 2\n', encoding="utf-8")
    assert compare.statements(path) == 3


def test_a_program_of_penstock_is_never_much_longer() -> None:
    for task in compare.TASKS:
        assert compare.total("penstock", task) <= compare.total("pyzmq", task) + 1, task
