# SPDX-License-Identifier: Apache-2.0
"""The rules of the house that a program can check."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("penstock", "core", "daemon", "client", "config", "sim", "spark_bridge", "systemd")
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 70
MAX_COLUMNS = 100

# The folder of the core that is not on the data path, and what the others must not call.  Functions
# that make or end an object are set-up, wherever they stand.
CONDUCTOR = "driver"
SET_UP = re.compile(
    r"_(attach|prepare|open|close|unmap|create|destroy|init|fini|free|make|new|add|remove"
    r"|start|stop|grow|params)(_|$)"
    r"|^ps_net_[a-z]+$"
)
BANNED = re.compile(
    r"\b(malloc|calloc|realloc|free|strdup|aligned_alloc|posix_memalign|printf|fprintf|puts|perror"
    r"|syslog|pthread_mutex_lock|pthread_cond_wait|usleep|nanosleep|sleep|abort|exit|rand|random"
    r"|time|gettimeofday|localtime|ops->close|munmap)\s*\("
)
# Nothing runs after it.
ENDS_THE_PROCESS = {"ps_assert_failed"}
LEFTOVERS = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b|/(work|root)/")


def sources(*patterns: str) -> list[Path]:
    folders = [ROOT / name for name in (*PACKAGES, "tests", "tools", "demo", "bench")]
    found = [p for folder in folders for pattern in patterns for p in folder.rglob(pattern)]
    return sorted(p for p in found if "build" not in p.relative_to(ROOT).parts)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def c_functions(text: str) -> Iterator[tuple[str, int, list[str]]]:
    """(name, first line number, lines) of each function definition."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if line != "{" and not re.match(r"^[A-Za-z].*\)\s*\{$|^ .*\)\s*\{$", line):
            continue
        first = index
        while first > 0 and lines[first - 1].strip() and not re.search(
            r"[;}]\s*$|\*/\s*$|^#|^//", lines[first - 1]
        ):
            first -= 1
        head = " ".join(lines[first : index + 1])
        match = re.match(r"^[A-Za-z_].*?\b(\w+)\s*\(", head)
        if match is None or head.startswith((" ", "typedef", "struct {", "enum")):
            continue
        last = next((i for i in range(index, len(lines)) if lines[i].startswith("}")), None)
        if last is not None:
            yield match[1], first + 1, lines[first : last + 1]


def without_comments(text: str) -> str:
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r'"(\\.|[^"\\\n])*"', '""', text)


def test_files_begin_with_their_licence() -> None:
    wrong = [
        name(path) for path in sources("*.c", "*.h", "*.py", "*.pyi", "*.toml", "*.java")
        if "SPDX-License-Identifier: Apache-2.0" not in
        "".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:2])
    ]
    assert wrong == []


def test_files_are_short() -> None:
    wrong = [
        f"{name(path)}: {count} lines" for path in sources("*.c", "*.h", "*.py")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > MAX_FILE_LINES
    ]
    assert wrong == []


def test_lines_are_short() -> None:
    wrong = [
        f"{name(path)}:{number}" for path in sources("*.c", "*.h", "*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > MAX_COLUMNS
    ]
    assert wrong == []


def test_c_functions_are_short() -> None:
    wrong = [
        f"{name(path)}:{number}: {function} has {len(lines)} lines"
        for path in sources("*.c", "*.h")
        for function, number, lines in c_functions(path.read_text(encoding="utf-8"))
        if len(lines) > MAX_FUNCTION_LINES
    ]
    assert wrong == []


def test_python_functions_are_short() -> None:
    wrong = []
    for path in sources("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[0]
                last = node.end_lineno or 0
                lines = last - node.lineno + 1
                if ast.get_docstring(node) is not None:
                    lines -= (first.end_lineno or 0) - first.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    wrong.append(f"{name(path)}:{node.lineno}: {node.name} has {lines} lines")
    assert wrong == []


def test_the_data_path_neither_allocates_nor_locks_nor_logs() -> None:
    folder = ROOT / "core/src"
    hot = [p for p in folder.glob("*/*.c") if p.parent.name != CONDUCTOR]
    assert len(hot) > 50
    wrong = [
        f"{name(path)}:{number + offset}: {function} calls {match[1]}"
        for path in hot
        for function, number, lines in c_functions(without_comments(
            path.read_text(encoding="utf-8")))
        if not SET_UP.search(function) and function not in ENDS_THE_PROCESS
        for offset, line in enumerate(lines)
        if (match := BANNED.search(line))
    ]
    assert wrong == []


def test_the_scanner_of_functions_finds_them() -> None:
    text = "int a(void)\n{\n    free(x);\n}\n\nstatic void b(int x,\n              int y) {\n}\n"
    assert [(f, n, len(lines)) for f, n, lines in c_functions(text)] == [("a", 1, 4), ("b", 6, 3)]


def test_nothing_is_left_behind() -> None:
    wrong = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in sources("*.c", "*.h", "*.py", "*.pyi", "*.toml", "*.sh", "*.java")
        if path != Path(__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if LEFTOVERS.search(line)
    ]
    assert wrong == []


def imported(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def test_every_package_is_in_the_distribution() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        listed = set(tomllib.load(file)["tool"]["setuptools"]["packages"])
    found = {
        ".".join(("penstock", *path.parent.relative_to(ROOT).parts)).removeprefix("penstock.")
        if path.is_relative_to(ROOT / "penstock")
        else ".".join(("penstock", *path.parent.relative_to(ROOT).parts))
        for package in PACKAGES for path in (ROOT / package).rglob("__init__.py")
    }
    assert found == listed


def test_only_core_touches_the_extension() -> None:
    wrong = [
        f"{name(path)}:{line}: {module}"
        for package in PACKAGES if package != "core"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, module in imported(path)
        if module in ("cffi", "penstock._core", "penstock._core_bench")
        or module.startswith("penstock.core._lib")
        or (module.startswith("penstock._core_sim") and path != ROOT / "sim/core.py")
    ]
    assert wrong == []
