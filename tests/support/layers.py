# SPDX-License-Identifier: Apache-2.0
"""Who includes and who calls whom in the C of the tree: from ``#include`` lines and from ``nm``."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeAlias

ROOT: Final = Path(__file__).resolve().parent.parent.parent
INCLUDE: Final = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
Graph: TypeAlias = Mapping[str, frozenset[str]]

# Folders that the C of each folder may include and link, beside its own and core/include.
ALLOWED: Final[dict[str, tuple[str, ...]]] = {
    "core/src/base": (),
    "core/src/wire": ("base",),
    "core/src/memory": ("base", "wire"),
    "core/src/transport": ("base",),
    "core/src/protocol": ("base", "wire", "transport/ps_net.h"),
    "core/src/agent": ("base", "memory", "transport"),
    "core/src/sender": ("base", "wire", "memory", "transport", "protocol", "agent"),
    "core/src/receiver": ("base", "wire", "memory", "transport", "protocol", "agent"),
    "core/src/driver": (
        "base", "wire", "memory", "transport", "protocol", "agent", "sender", "receiver"
    ),
    "core/src/client": ("base", "wire", "memory"),
    "penstock/_bench/native": ("client/ps_fast.h",),
    "core/fast": ("client/ps_fast.h",),
    "sim/native/network": ("base", "wire", "transport"),
    "sim/native/world": (
        "base", "wire", "memory", "transport", "agent", "driver", "client", "sim/native/network"
    ),
    "sim/native/oracle": (
        "base", "wire", "memory", "transport", "protocol", "agent", "sender", "receiver", "driver",
        "client", "sim/native/network", "sim/native/world"
    ),
}


def c_files(*folders: str, pattern: str = "*.[ch]") -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).glob(pattern))]


def name(path: Path) -> str:
    """The file below the root; below ``core/src`` its folder and name."""
    return str(path.relative_to(ROOT)).removeprefix("core/src/")


def is_allowed(source: Path, target: Path) -> bool:
    """Whether the folder of ``source`` may use ``target``."""
    folder = str(source.parent.relative_to(ROOT))
    used = name(target)
    return (
        source.parent == target.parent
        or used.startswith("core/include/")
        or any(
            used == rule or used.rpartition("/")[0] == rule for rule in ALLOWED[folder]
        )
    )


def includes(files: Iterable[Path]) -> Iterator[tuple[Path, Path]]:
    """(file, header of ours that it includes), for each such line."""
    headers = {path.name: path for folder in ALLOWED for path in (ROOT / folder).glob("*.h")}
    headers.update({path.name: path for path in (ROOT / "core/include").glob("*.h")})
    for path in files:
        for header in INCLUDE.findall(path.read_text(encoding="utf-8")):
            yield path, headers[header]


def compiled(files: list[Path], place: Path) -> dict[Path, Path]:
    """The object file of each source, built below ``place``."""
    flags = ["-std=gnu11", "-O1", "-UNDEBUG", "-w", f"-I{ROOT / 'core/include'}"]
    flags += [f"-I{ROOT / folder}" for folder in ALLOWED]
    flags.append(f"-I{sysconfig.get_path('include')}")

    def build(source: Path) -> tuple[Path, Path]:
        made = place / f"{source.stem}.o"
        command = [os.environ.get("CC", "cc"), *flags, "-c", "-o", str(made), str(source)]
        subprocess.run(command, check=True)
        return source, made

    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(build, files))


def links(objects: Mapping[Path, Path]) -> dict[tuple[Path, Path], list[str]]:
    """(source, source that defines what it uses) -> the symbols."""
    defined: dict[str, Path] = {}
    used: list[tuple[Path, str]] = []
    for source, made in objects.items():
        listed = subprocess.run(["nm", str(made)], check=True, capture_output=True, text=True)
        for line in listed.stdout.splitlines():
            kind, symbol = line.split()[-2:]
            if kind == "U":
                used.append((source, symbol))
            elif kind.isupper():
                defined[symbol] = source
    found: dict[tuple[Path, Path], list[str]] = {}
    for source, symbol in used:
        if symbol in defined:
            found.setdefault((source, defined[symbol]), []).append(symbol)
    return found


def cycles(edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The strongly connected parts of more than one file, each sorted (Tarjan 1972)."""
    graph: dict[str, list[str]] = {}
    for source, target in edges:
        graph.setdefault(source, []).append(target)
        graph.setdefault(target, [])
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in graph[node]:
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            at = stack.index(node)
            part = sorted(stack[at:])
            del stack[at:]
            if len(part) > 1:
                found.append(part)

    for node in sorted(graph):
        if node not in number:
            visit(node)
    return sorted(found)
