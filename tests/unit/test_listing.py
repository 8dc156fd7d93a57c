# SPDX-License-Identifier: Apache-2.0
"""A folder that changes while it is listed."""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.hosts import memory_directory
from support.listing import names_at_once


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of tmpfs, where the directories of daemons are."""
    with tempfile.TemporaryDirectory(dir=memory_directory(), prefix="penstock-test-") as name:
        yield Path(name)


def make(folder: Path, first: int, end: int) -> set[str]:
    names = {f"{number}.logbuffer" for number in range(first, end)}
    for name in names:
        (folder / name).touch()
    return names


@pytest.mark.parametrize("count", [0, 1, 1000, 5000])
def test_it_has_each_name(folder: Path, count: int) -> None:
    made = make(folder, 0, count) | {"ä"}
    (folder / "ä").touch()
    assert names_at_once(folder) == made == set(os.listdir(folder))


def test_it_has_what_was_there_at_one_moment(folder: Path) -> None:
    """A file comes before the oldest one goes: there are never others than 1000 or 1001."""
    make(folder, 0, 1000)
    over = threading.Event()

    def change() -> None:
        for number in itertools.takewhile(lambda _: not over.is_set(), itertools.count()):
            (folder / f"{number + 1000}.logbuffer").touch()
            (folder / f"{number}.logbuffer").unlink()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        seen = [sorted(int(Path(name).stem) for name in names_at_once(folder)) for _ in range(300)]
    finally:
        over.set()
        thread.join()
    for numbers in seen:
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert len(numbers) in (1000, 1001)
    assert seen[0] != seen[-1]


def test_more_names_than_one_system_call_returns_are_an_error(folder: Path) -> None:
    make(folder, 0, 30_000)
    with pytest.raises(OSError, match="more names"):
        names_at_once(folder)


def test_a_list_of_no_folder_is_an_error(folder: Path) -> None:
    (folder / "file").touch()
    with pytest.raises(NotADirectoryError):
        names_at_once(folder / "file")
    with pytest.raises(FileNotFoundError):
        names_at_once(folder / "absent")
