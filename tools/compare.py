# SPDX-License-Identifier: Apache-2.0
"""Count the statements of the programs in bench/compare, and write docs/compare.md.

    python tools/compare.py            write the page
    python tools/compare.py --check    exit with 1 if the page differs
    python tools/compare.py --measure  run each program and write bench/compare/times.toml, then
                                       the page; $PENSTOCK_DIR has a daemon
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "compare.md"
PROGRAMS = ROOT / "bench" / "compare"
TIMES = PROGRAMS / "times.toml"
#: Where `make build/bench/site/.installed` puts the peers that only the benchmarks need.
SITE = ROOT / "build" / "bench" / "site"
LIBRARIES = {
    "penstock": "penstock_programs", "pyzmq": "pyzmq_programs", "zenoh": "zenoh_programs",
}
RUNS = 5
#: Commands that must run before a program, and count as a statement each.
BEFORE = {"penstock": 1, "pyzmq": 0, "zenoh": 0}
TASKS = {
    "hello": "Hello world", "million": "A million records", "request_reply": "Request and reply",
    "fan_out": "Fan-out", "back_pressure": "Back-pressure and its culprit",
    "monitoring": "Monitoring", "in_asyncio": "asyncio",
}
NOTES = {
    "hello": "penstock needs a daemon and a publication; in zenoh a session sends directly.",
    "million": "penstock and pyzmq hold at most their windows in memory. The callback of zenoh "
    "puts every record into a queue of Python without a bound.",
    "request_reply": "penstock needs a daemon. zenoh needs no object for the requester.",
    "back_pressure": "pyzmq reports that the queue is full, and cannot name the reader. `put` of "
    "zenoh blocks without a time-out, so the program sends in a thread.",
    "monitoring": "pyzmq reports events of a socket, and zenoh whether a reader matches. penstock "
    "reports the state of every stream of the host, to any client.",
    "fan_out": "In zenoh, receivers of the same session are connected at once. A ZeroMQ publisher "
    "drops messages for a subscriber that has not joined yet, so the program waits for three "
    "subscriptions.",
}
_HEAD = """\
# Programs side by side

`tools/compare.py` writes this page from the programs in `bench/compare`. The tests run each
program and compare the outputs. All programs have the same error paths: a time-out of each wait,
and an exception if it expires.

A statement is a node `ast.stmt` of the program's syntax tree, without docstrings and imports. For
penstock the command `penstock up`, which starts the daemon, counts as one statement of each
program. pyzmq and zenoh need no daemon. The programs use shared memory (`aeron:ipc`), ZeroMQ's
`inproc` sockets and one session of zenoh. ZeroMQ's monitoring needs a connection, so it uses TCP.
`inproc` sockets and one session do not leave the process; `aeron:ipc` reaches every process of the
host. zenoh searches for other hosts by default; its programs turn that off. `put` of zenoh has no
time-out, so only its receivers have one. Its programs are the shortest in four tasks, for the
reasons given there.

Why penstock states [what was measured of the transport](why.md). NATS and Kafka are not compared
here yet.
"""
_TIMES = """
Seconds from the start of Python to its end, with imports. Each is the shortest of five runs, in
turn, on a virtual machine with two processors that also ran other programs. The daemon of penstock
ran before. The shorter programs spend their time on imports and connections, where penstock is the
slowest. Compare columns only with each other:
"""


def statements(path: Path) -> int:
    """Return the number of statements, without imports and docstrings."""
    count = 0
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and not docstring:
            count += not isinstance(node, ast.Import | ast.ImportFrom)
    return count


def program(library: str, task: str) -> Path:
    return PROGRAMS / LIBRARIES[library] / f"{task}.py"


def total(library: str, task: str) -> int:
    """Return the statements of a program, and the commands before it."""
    return statements(program(library, task)) + BEFORE[library]


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a program: the peers of the benchmarks can be imported."""
    return {**os.environ, "PYTHONPATH": str(SITE), **more}


def measure() -> None:
    """Write the shortest of some runs of each program, in turn, in seconds."""
    shortest: dict[tuple[str, str], float] = {}
    for _ in range(RUNS):
        for task in TASKS:
            for library in LIBRARIES:
                start = time.perf_counter()
                subprocess.run(
                    [sys.executable, str(program(library, task))], check=True,
                    env=environment(), stdout=subprocess.DEVNULL,
                )
                took = time.perf_counter() - start
                shortest[task, library] = min(took, shortest.get((task, library), took))
    lines = ["# SPDX-License-Identifier: Apache-2.0",
             "# Seconds; written by tools/compare.py --measure"]
    for task in TASKS:
        lines.append(f"\n[{task}]")
        lines += [f"{library} = {shortest[task, library]:.3f}" for library in LIBRARIES]
    TIMES.write_text("\n".join(lines) + "\n", encoding="utf-8")


def times() -> list[str]:
    """Return the table of what was measured."""
    measured = tomllib.loads(TIMES.read_text(encoding="utf-8"))
    parts = [_TIMES, "\n| task | " + " | ".join(LIBRARIES) + " |\n|---|" + "---|" * len(LIBRARIES)]
    for task, title in TASKS.items():
        found = " | ".join(f"{measured[task][library]:.2f}" for library in LIBRARIES)
        parts.append(f"\n| {title} | {found} |")
    return [*parts, "\n"]


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD, "\n| task | " + " | ".join(LIBRARIES) + " |\n|---|" + "---|" * len(LIBRARIES)]
    for task, title in TASKS.items():
        counts = " | ".join(str(total(library, task)) for library in LIBRARIES)
        parts.append(f"\n| {title} | {counts} |")
    parts += ["\n", *times()]
    for task, title in TASKS.items():
        parts.append(f"\n## {title}\n")
        if task in NOTES:
            parts.append(f"\n{NOTES[task]}\n")
        for library in LIBRARIES:
            text = program(library, task).read_text(encoding="utf-8").split('"""\n', 1)[1].strip()
            parts.append(f"\n{library}:\n\n```python\n{text}\n```\n")
    return "".join(parts)


def main() -> int:
    if "--measure" in sys.argv:
        measure()
    if "--check" not in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page())


if __name__ == "__main__":
    sys.exit(main())
