# SPDX-License-Identifier: Apache-2.0
"""The mutation list: it covers whole folders, and what it lists as equivalent exists."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import mutants  # noqa: E402
from mutants import strip as blank  # noqa: E402


@pytest.fixture(scope="module")
def known() -> list[Any]:
    return mutants.every()


def test_each_mutant_listed_as_equivalent_is_one_of_the_source(known: list[Any]) -> None:
    """Or a line that changed keeps a claim about the line that stood there before."""
    assert len(mutants.equivalent(known)) > 10


def test_a_listed_mutant_that_is_gone_is_an_error(known: list[Any]) -> None:
    first = next(iter(mutants.equivalent(known)))
    with pytest.raises(mutants.ListError, match="there is no mutant"):
        mutants.equivalent([mutant for mutant in known if mutant.key != first])


def test_every_file_of_the_agents_and_the_protocol_is_mutated() -> None:
    folders = {"protocol", "sender", "receiver"}
    files = {path for path in mutants.files() if path.parent.name in folders}
    assert files == {path for f in folders for path in (ROOT / "core/src" / f).glob("*.c")}


def test_an_assertion_is_not_mutated() -> None:
    blanked = blank("    PS_ASSERT(count > 0 && (a | b) < 3);\n    left = count > 0;\n")
    assert "PS_ASSERT" not in blanked
    assert "left = count > 0;" in blanked
