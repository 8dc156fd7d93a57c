# SPDX-License-Identifier: Apache-2.0
"""Count the statements of the programs in bench/compare, and write docs/compare.md.

    python tools/compare.py            write the page
    python tools/compare.py --check    exit with 1 if the page differs
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "compare.md"
PROGRAMS = ROOT / "bench" / "compare"
LIBRARIES = {"penstock": "penstock_programs", "pyzmq": "pyzmq_programs"}
#: Commands that must run before a program, and count as a statement each.
BEFORE = {"penstock": 1, "pyzmq": 0}
TASKS = {
    "hello": "Hello world", "million": "A million records", "request_reply": "Request and reply",
    "fan_out": "Fan-out", "back_pressure": "Back-pressure and its culprit",
    "monitoring": "Monitoring", "in_asyncio": "asyncio",
}
NOTES = {
    "back_pressure": "pyzmq reports that the queue is full, and cannot name the reader.",
    "monitoring": "pyzmq reports events of a socket. penstock reports the state of every stream of "
    "the host, to any client.",
    "fan_out": "A ZeroMQ publisher drops messages for a subscriber that has not joined yet, so the "
    "program waits for three subscriptions.",
}
_HEAD = """\
# Programs side by side

`tools/compare.py` writes this page from the programs in `bench/compare`. The tests run each
program and compare the outputs. All programs have the same error paths: a time-out of each wait,
and an exception if it expires.

A statement is a node `ast.stmt` of the program's syntax tree, without docstrings and imports. For
penstock the command `penstock up`, which starts the daemon, counts as one statement of each
program. pyzmq needs no daemon. The programs use shared memory (`aeron:ipc`) and ZeroMQ's `inproc`
sockets, except for monitoring, which needs a connection. `inproc` does not leave the process;
`aeron:ipc` reaches every process of the host.

The page has no times: [Why penstock](why.md) states what was measured. Zenoh, NATS and Kafka are
not compared here yet.
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


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD, "\n| task | " + " | ".join(LIBRARIES) + " |\n|---|" + "---|" * len(LIBRARIES)]
    for task, title in TASKS.items():
        counts = " | ".join(str(total(library, task)) for library in LIBRARIES)
        parts.append(f"\n| {title} | {counts} |")
    parts.append("\n")
    for task, title in TASKS.items():
        parts.append(f"\n## {title}\n")
        if task in NOTES:
            parts.append(f"\n{NOTES[task]}\n")
        for library in LIBRARIES:
            text = program(library, task).read_text(encoding="utf-8").split('"""\n', 1)[1].strip()
            parts.append(f"\n{library}:\n\n```python\n{text}\n```\n")
    return "".join(parts)


def main() -> int:
    differs = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page()
    if "--check" not in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
