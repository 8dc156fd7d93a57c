# SPDX-License-Identifier: Apache-2.0
"""The programs that the page compares run, print the same, and are those of the page."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.hosts import PenstockHost
from support.not_run import need_command, not_run
from support.own_network import machine_network

from penstock._bench.processes import BenchError

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
    "nats-py": "held by slow-reader\n", "aiokafka": "held by slow reader\n",
}
#: Lines that aiokafka logs while the broker makes a topic or a group for the first time.
_MADE_NOW = re.compile(
    r"Topic \S+ (not found in|is not available during) .*|Group Coordinator Request failed: .*|"
    r"Marking the coordinator dead .*|Failed fetch offsets from \S+ \[Error 6\] NotLeaderFor\w+: .*"
)


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[str, tuple[str, ...]]]:
    """Install the peers where the benchmarks have them, pinned, and run their brokers."""
    need_command("java", "default-jdk-headless, for Kafka's broker")
    need_command("mvn", "maven, for Kafka's broker")
    with machine_network():
        done = subprocess.run(
            ["make", "-s", "build/bench/site/.installed", "build/bench/kafka-broker/.fetched"],
            cwd=ROOT, check=False, capture_output=True, text=True, timeout=300,
        )
    if done.returncode != 0:
        not_run(f"a peer cannot be installed: {done.stderr[-300:]}")
    with contextlib.ExitStack() as stack:
        try:
            arguments = stack.enter_context(compare.brokers())
        except BenchError as error:
            not_run(str(error))
        yield arguments


@pytest.mark.parametrize("task", compare.TASKS)
@pytest.mark.parametrize("library", compare.LIBRARIES)
def test_a_program_prints_what_it_should(
    host: PenstockHost, brokers: dict[str, tuple[str, ...]], library: str, task: str
) -> None:
    done = subprocess.run(
        compare.command(library, task, brokers),
        capture_output=True, text=True, timeout=120, check=False,
        env=compare.environment(PENSTOCK_DIR=str(host.directory)),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (PRINTS.get(task) or CULPRITS[library])
    assert [line for line in done.stderr.splitlines() if not _MADE_NOW.fullmatch(line)] == []


def test_the_page_shows_these_programs() -> None:
    """After a change of a program: python tools/compare.py."""
    assert compare.PAGE.read_text(encoding="utf-8") == compare.page()


def test_statements_are_counted_in_the_syntax_tree(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text('"""Text."""\nimport os\nif os:\n    a = 1; b = 2\n', encoding="utf-8")
    assert compare.statements(path) == 3


def test_a_program_of_penstock_is_the_shortest_or_the_page_says_why_not() -> None:
    for task in compare.TASKS:
        totals = {library: compare.total(library, task) for library in compare.LIBRARIES}
        shorter = {library for library in totals if totals[library] < totals["penstock"]}
        named = {
            library for library in totals
            if re.search(rf"\b{library.removesuffix('-py')}\b", compare.SHORTER.get(task, ""), re.I)
        }
        assert shorter == named - {"penstock"}, task
