# SPDX-License-Identifier: Apache-2.0
"""Pages for maintainers name files and functions of the core; each of them exists in the tree."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path, PurePosixPath
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
TRACKED: Final = tuple(
    subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
)
PAGES: Final = (
    "CONTRIBUTING.md", "bench/README.md", "core/README.md", "docs/internals.md", "sim/README.md",
    "tools/questions.toml",
    *(name for name in TRACKED if name.startswith("docs/spec/")),
)
FOLDERS: Final = "bench|client|config|core|daemon|demo|docs|penstock|sim|spark_bridge|systemd" \
    "|tests|tools"
#: A file by its name or path, ``*`` allowed, or a folder by its path.
PATH: Final = re.compile(
    r"(?<![\w./])[\w*.-]+(?:/[\w*.-]+)*\.(?:c|h|py|md|toml|json|java|sh|lock)\b"
    rf"|(?<![\w./])(?:{FOLDERS})(?:/[\w*-]+)+"
)
NAME: Final = re.compile(r"\b(?:ps|PS)_\w+\*?")


def exists(named: str, page: str = "") -> bool:
    """Whether a page may name the path: from the root, from its folder, or by its end."""
    base = PurePosixPath(page).parent
    while named.startswith("../"):
        named, base = named[3:], base.parent
        if named and (ROOT / base / named).exists():
            return True
    if "*" in named:
        return any(PurePosixPath(name).match(named) for name in TRACKED)
    return any(
        name == named or name.endswith(f"/{named}") or f"/{named}/" in f"/{name}"
        for name in TRACKED
    )


@pytest.fixture(scope="module")
def names() -> frozenset[str]:
    """Names of the core: every ``ps_`` word of its sources, and the stems of all files."""
    found = {PurePosixPath(name).stem for name in TRACKED}
    for name in TRACKED:
        if name.endswith((".c", ".h")) and name.startswith(("core/", "sim/native/")):
            found.update(NAME.findall((ROOT / name).read_text(encoding="utf-8")))
    return frozenset(found)


def is_known(name: str, names: frozenset[str]) -> bool:
    if name.endswith(("*", "_")):
        return any(known.startswith(name.rstrip("*")) for known in names)
    return name in names


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert sorted({path for path in PATH.findall(text) if not exists(path, page)}) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_name_of_the_core_on_a_page_exists(page: str, names: frozenset[str]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert sorted({name for name in NAME.findall(text) if not is_known(name, names)}) == []


def test_a_file_or_name_that_is_not_there_is_found(names: frozenset[str]) -> None:
    text = "see `daemon/no_such.py`, core/src/nowhere and ps_no_such_thing"
    assert [path for path in PATH.findall(text) if not exists(path)] == [
        "daemon/no_such.py", "core/src/nowhere",
    ]
    assert [name for name in NAME.findall(text) if not is_known(name, names)] == [
        "ps_no_such_thing"
    ]
