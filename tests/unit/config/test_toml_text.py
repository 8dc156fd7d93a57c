# SPDX-License-Identifier: Apache-2.0
"""Garbage is not collected while a TOML text is parsed, and deep brackets are one error."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import ClassVar

import pytest

from penstock.config.toml_text import parse_toml

DEEP = "a = " + "[" * 5000


class Cycle:
    """An object that only a collection finds; it notes whether a parser was running then."""

    found: ClassVar[list[bool]] = []

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        frame, inside = sys._getframe(), False
        while frame.f_back is not None:
            frame = frame.f_back
            inside |= "tomllib" in frame.f_code.co_filename
        self.found.append(inside)


@pytest.fixture
def eager() -> Iterator[None]:
    """Collections start at each second allocation, when collections are allowed."""
    before = gc.get_threshold()
    gc.collect()
    Cycle.found.clear()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


def litter(_text: str) -> float:
    """Read a number and leave garbage behind, as a program may have done before."""
    Cycle()
    return 0.5


@pytest.mark.parametrize("text", ["a = 1.5\nb = [[1], [2]]\n[c]\nd = 1\n", f"e = 1.5\n{DEEP}"])
def test_no_finalizer_runs_inside_the_parser(eager: None, text: str) -> None:
    try:
        parse_toml(text, parse_float=litter)
    except ValueError:
        assert DEEP in text
    gc.collect()
    assert Cycle.found == [False]


def test_brackets_too_deep_are_an_error_of_one_line() -> None:
    with pytest.raises(ValueError, match=r"^brackets are nested too deep \(recursion\)$"):
        parse_toml(DEEP)


def test_collections_stay_off_when_they_were_off() -> None:
    gc.disable()
    try:
        parse_toml("a = 1")
        assert not gc.isenabled()
    finally:
        gc.enable()
    parse_toml("a = 1")
    assert gc.isenabled()
