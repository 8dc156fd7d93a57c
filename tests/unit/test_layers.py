# SPDX-License-Identifier: Apache-2.0
"""The layers of the C core and of the simulator: each folder includes and links only the folders
its rule names, and calls between files have no cycles (``tests/support/layers.py``,
``core/README.md``)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from support.layers import (
    ALLOWED,
    c_files,
    compiled,
    cycles,
    includes,
    is_allowed,
    links,
    name,
)

CORE: Final = tuple(folder for folder in ALLOWED if folder.startswith("core/src"))
SIMULATOR: Final = tuple(folder for folder in ALLOWED if folder.startswith("sim/native"))
EXTENSIONS: Final = tuple(
    folder for folder in ALLOWED if folder not in CORE and folder not in SIMULATOR
)
# Two files of one folder may call each other; more may not.
MOST_IN_A_CYCLE: Final = 2


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[Path, Path]]:
    """(source, source that defines what it calls) of the core, the simulator and the extensions."""
    sources = c_files(*CORE, *SIMULATOR, *EXTENSIONS, pattern="*.c")
    return set(links(compiled(sources, tmp_path_factory.mktemp("objects"))))


def test_every_folder_with_c_has_a_rule() -> None:
    for below, ruled in (("core/src", CORE), ("sim/native", SIMULATOR)):
        found = (Path(__file__).parents[2] / below).iterdir()
        assert {f"{below}/{path.name}" for path in found} == set(ruled)


def test_a_folder_includes_what_its_rule_allows() -> None:
    upwards = {
        (name(source), name(target)) for source, target in includes(c_files(*ALLOWED))
        if not is_allowed(source, target)
    }
    assert upwards == set()


def test_a_folder_links_what_its_rule_allows(linked: set[tuple[Path, Path]]) -> None:
    upwards = {
        (name(source), name(target)) for source, target in linked
        if not is_allowed(source, target)
    }
    assert upwards == set()


def test_calls_between_files_have_no_cycles(linked: set[tuple[Path, Path]]) -> None:
    found = cycles((name(source), name(target)) for source, target in linked)
    assert [files for files in found if len(files) > MOST_IN_A_CYCLE] == []
    assert [files for files in found if len({path.rpartition("/")[0] for path in files}) > 1] == []


def test_sender_and_receiver_do_not_know_each_other(linked: set[tuple[Path, Path]]) -> None:
    both = {"sender", "receiver"}
    pairs = [*includes(c_files(*CORE)), *linked]
    assert [pair for pair in pairs if {path.parent.name for path in pair} == both] == []


def test_a_cycle_is_found() -> None:
    assert cycles([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e")]) == [["a", "b", "c"]]
