# SPDX-License-Identifier: Apache-2.0
"""Count the instructions of a message: ``python tests/native/instructions/measure.py``.

Callgrind runs ``loop.c`` and attributes each instruction to the source file it comes from.  The
table has the core's share alone, by folder of ``core/src``: instructions of the simulated network
and of the C library are left out.  The numbers depend on compiler and source, never on the load of
the machine.  ``table.json`` has those of the commit that changed it last; ``--write`` renews it.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import click

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[2]
TABLE: Final = HERE / "table.json"
ROWS: Final = (
    "udp-32", "udp-1344", "shared-32", "ipc-32", "ipc-shared-32",
    "udp-32-credits", "shared-32-credits", "ipc-32-credits", "ipc-shared-32-credits",
)
MESSAGES: Final = 20_000
HOSTS: Final = ("sender", "receiver")
OPEN: Final = (10, 1000, 10_000)
STREAMS_RATE: Final = 200       # messages a millisecond, as `penstock bench streams`
IDLE_PERIOD_MS: Final = 1000    # in which each idle stream has its heartbeats and status messages
LINE: Final = re.compile(r"^\s*([\d,]+) \(.*?\)\s+(\S+):")
CORE: Final = re.compile(r"core/src/(\w+)/\w+\.[ch]$")


def build(name: str = "loop") -> Path:
    """Return the program, built for release."""
    program = ROOT / "build/native/release" / name
    subprocess.run(["make", "--silent", "-C", ROOT / "tests/native", program], check=True)
    return program


def compiler() -> str:
    done = subprocess.run(["cc", "--version"], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()[0]


def _instructions(command: list[str]) -> dict[str, int]:
    """Return the instructions of the core inside of the function ``measured``, by source file."""
    with tempfile.TemporaryDirectory() as place:
        out = f"{place}/callgrind.out"
        subprocess.run(
            [
                "valgrind", "--quiet", "--tool=callgrind", "--collect-atstart=no",
                "--toggle-collect=measured*", f"--callgrind-out-file={out}", *command,
            ],
            check=True,
        )
        lines = subprocess.run(
            ["callgrind_annotate", "--threshold=100", out], check=True, capture_output=True,
            text=True,
        ).stdout.splitlines()
    files: dict[str, int] = {}
    for line in lines:
        found = LINE.match(line)
        of = CORE.search(found[2]) if found else None
        if found and of:
            files[of[0]] = files.get(of[0], 0) + int(found[1].replace(",", ""))
    return files


def count(program: Path, row: str) -> dict[str, float]:
    """Return instructions a message, by folder of the core, and their sum as ``core``."""
    files = _instructions([str(program), row, str(MESSAGES)])
    folders: dict[str, int] = {}
    for name, instructions in files.items():
        folder = name.split("/")[2]
        folders[folder] = folders.get(folder, 0) + instructions
    by_folder = {name: round(folders[name] / MESSAGES, 1) for name in sorted(folders)}
    return {"core": round(sum(folders.values()) / MESSAGES, 1), **by_folder}


def count_streams(
    program: Path, host: str, streams: int, milliseconds: int = IDLE_PERIOD_MS
) -> dict[str, float]:
    """Return the instructions of a message at one host, by source file, and their sum as ``core``:
    ``streams`` streams are open, and 10 of them carry messages."""
    files = _instructions([str(program), host, str(streams), str(milliseconds)])
    messages = STREAMS_RATE * milliseconds
    by_file = {name: round(files[name] / messages, 2) for name in sorted(files)}
    return {"core": round(sum(files.values()) / messages, 1), **by_file}


def read_table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def show_streams(program: Path, files: bool) -> None:
    for host in HOSTS:
        base = 0.0
        for streams in OPEN:
            found = count_streams(program, host, streams)
            base = base or found["core"]
            click.echo(f"{host:10} {streams:6} {found['core']:8.1f}  {found['core'] / base:6.3f}")
            for name, value in found.items() if files else ():
                click.echo(f"    {name:42} {value:8.2f}")


@click.command()
@click.option("--write", is_flag=True, help="Renew table.json.")
@click.option("--streams", is_flag=True, help="Only the hosts with many open streams.")
@click.option("--files", is_flag=True, help="With --streams: also each source file.")
@click.option("--program", type=click.Path(path_type=Path), help="Another build of the program.")
def main(write: bool, streams: bool, files: bool, program: Path | None) -> None:
    """Print instructions a message, beside those of the table."""
    if streams:
        show_streams(program or build("streams"), files)
        return
    before = read_table()["rows"] if TABLE.exists() else {}
    path = program or build()
    rows = {row: count(path, row) for row in ROWS}
    for row, found in rows.items():
        for name, value in found.items():
            click.echo(f"{row:10} {name:10} {value:8.1f}  {before.get(row, {}).get(name, 0):8.1f}")
    if write:
        table = {"compiler": compiler(), "rows": rows}
        TABLE.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
