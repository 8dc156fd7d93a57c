# SPDX-License-Identifier: Apache-2.0
"""Count the statements of the programs in bench/compare, and write docs/compare.md.

    python tools/compare.py            write the page
    python tools/compare.py --check    exit with 1 if the page differs
    python tools/compare.py --measure  run each program and write bench/compare/times.toml, then
                                       the page; $PENSTOCK_DIR has a daemon, and `make
                                       bench-kafka` fetched Kafka's broker
"""

from __future__ import annotations

import ast
import contextlib
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "compare.md"
PROGRAMS = ROOT / "bench" / "compare"
TIMES = PROGRAMS / "times.toml"
#: Where `make build/bench/site/.installed` puts the peers that only the benchmarks need.
SITE = ROOT / "build" / "bench" / "site"
LIBRARIES = {
    "penstock": "penstock_programs", "pyzmq": "pyzmq_programs", "zenoh": "zenoh_programs",
    "nats-py": "nats_programs", "aiokafka": "aiokafka_programs",
}
RUNS = 5
#: Commands that must run before a program, and count as a statement each.
BEFORE = {"penstock": 1, "pyzmq": 0, "zenoh": 0, "nats-py": 1, "aiokafka": 2}
TASKS = {
    "hello": "Hello world", "million": "A million records", "request_reply": "Request and reply",
    "fan_out": "Fan-out", "back_pressure": "Back-pressure and its culprit",
    "monitoring": "Monitoring", "in_asyncio": "asyncio",
}
NOTES = {
    "million": "The programs of penstock and pyzmq keep at most a window of messages in memory. "
               "The throughput program of zenoh puts every record into a Python queue without a "
               "bound. If the queue of a NATS client is full, the client drops messages. The NATS "
               "program therefore sets the queue's limit so high that the queue is never full. The "
               "throughput program of NATS spends most of its time in the tasks that `next_msg` "
               "starts; a callback is faster and needs more statements. Kafka stores the records.",
    "request_reply": "In Kafka, requests and replies are two topics, and the program finds the "
    "reply to a request by its key.",
    "fan_out": "In zenoh, receivers in the sender's session are connected as soon as they exist. "
               "In the NATS program, sender and receivers share one connection, and the server "
               "processes their requests in order. The sender therefore need not wait for the "
               "receivers. A ZeroMQ publisher drops messages for a subscriber that has not joined "
               "yet, so the program of pyzmq waits for three subscriptions.",
    "back_pressure": "If the sender's queue is full, pyzmq reports this, but cannot name the slow "
                     "reader. The function `put` of zenoh blocks without a time-out, so the "
                     "program of zenoh calls `put` in a thread. A NATS server drops messages for a "
                     "slow subscriber. JetStream, an extension of NATS, can refuse messages "
                     "instead of dropping them, and names the consumer that lags. Kafka never "
                     "blocks a publisher. The program of Kafka compares the newest offset with the "
                     "committed offset of the reader's group, whose name the program must know.",
    "monitoring": "pyzmq reports only the events of one socket. Zenoh reports whether a sender "
    "has a "
    "reader. Penstock reports the state of every stream of the host, to any client. The NATS "
    "server lists all subscriptions, and Kafka's broker lists the members of a group.",
}
#: Tasks in which another library's program is shorter, and the reason.
SHORTER = {
    "hello": "The program of zenoh is shorter than penstock's: a session of zenoh needs no "
    "daemon, and sends without an object for the sender.",
    "request_reply": "The program of zenoh is shorter than penstock's: zenoh needs no daemon and "
    "no object for the requester. Without the command `penstock up`, the programs of penstock and "
    "zenoh have the same number of statements.",
    "fan_out": "The programs of zenoh and NATS are shorter than penstock's: they have no object "
    "for the sender, and do not wait for the receivers. The sender of penstock waits, because a "
    "receiver that joins later would miss the first messages.",
    "monitoring": "The program of zenoh checks only its own sender, and is therefore shorter than "
                  "penstock's. In penstock, `sender.is_connected` states whether a sender has a "
                  "receiver.",
    "in_asyncio": "The program of NATS is shorter than penstock's: it has no object for the "
    "sender.",
}
_HEAD = """\
# Programs side by side

This page shows seven tasks in penstock, pyzmq, zenoh, nats-py and aiokafka. Read [Why
penstock](why.md) for a comparison of the systems. `tools/compare.py` writes this page from the
programs in `bench/compare`. The tests run each program and compare the outputs. All programs on
this page handle errors in the same way: each wait has a time-out, and raises an exception when the
time-out expires.

The second table on this page states the number of statements in each program. A statement is a
node of the class `ast.stmt` in the program's syntax tree; docstrings and imports do not count.
The following table lists the commands that a user must run before the programs of a library.
Each program's number of statements includes one statement for each of these commands of its
library:

| library | commands that must run before |
|---|---|
| penstock | `penstock up` |
| pyzmq, zenoh | none |
| nats-py | `nats-server` (task *Back-pressure*: with `-js`, task *Monitoring*: with `-m 8222`) |
| aiokafka | `kafka-storage format`, `kafka-server-start` |

The programs of penstock use shared memory (`aeron:ipc`), the programs of pyzmq use `inproc`
sockets, and each program of zenoh uses a single session. Messages on `inproc` sockets and in a
single session do not leave the process, while `aeron:ipc` reaches every process of the host.
Monitoring with pyzmq needs a connection, so pyzmq's monitoring program uses TCP. NATS and Kafka
use TCP to a broker; each program gets the broker's address as its argument. By default zenoh
searches for other hosts; the zenoh programs turn this search off. The function `put` of zenoh has
no time-out, so only the receiving programs of zenoh have a time-out.
"""
_TIMES = """
The third table on this page states the running time of each program in seconds, from the start
of Python to its end, with imports. Each running time is the shortest of five runs, on a virtual
machine with two processors. During the measurement of the running times, other programs ran on
the same machine. Before the measurement of the running times, the daemon of penstock and the
brokers were already running.
Short programs spend most of their time on imports and connections. In the task *A million
records*, Kafka stores the records, while the other libraries drop each record after the receiver
has read it. Compare the running times only with each other:
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


@contextlib.contextmanager
def brokers() -> Iterator[dict[str, tuple[str, ...]]]:
    """Run the brokers for the duration of the block.  Yields the arguments of each library's
    programs.

    :raises BenchError: a broker does not start.
    """
    sys.path.insert(0, str(ROOT))
    from bench import kafka, nats

    with nats.server() as (url, pages), kafka.broker() as address:
        yield {"nats-py": (url, pages), "aiokafka": (address,)}


def command(library: str, task: str, arguments: dict[str, tuple[str, ...]]) -> list[str]:
    """Return the command that runs a program; warnings are errors."""
    path = str(program(library, task))
    return [sys.executable, "-W", "error", path, *arguments.get(library, ())]


def measure() -> None:
    """Write the shortest of some runs of each program, in turn, in seconds.  Each round has new
    brokers, so that no topic has messages of the round before."""
    shortest: dict[tuple[str, str], float] = {}
    for _ in range(RUNS):
        with brokers() as arguments:
            for task in TASKS:
                for library in LIBRARIES:
                    start = time.perf_counter()
                    subprocess.run(
                        command(library, task, arguments), check=True, env=environment(),
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
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
        parts += [f"\n{notes[task]}\n" for notes in (SHORTER, NOTES) if task in notes]
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
