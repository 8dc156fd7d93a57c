# SPDX-License-Identifier: Apache-2.0
"""Logs as groups read them: ends, cuts and bytes of frames that may be hostile."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core import admin
from penstock.core.driver_types import LogParams
from penstock.core.errors import PenstockError
from penstock.core.group_log import GroupLog

TERM = 64 * 1024
INITIAL = -7
HEADER = struct.Struct("<iBBHiiiiq")


def make(folder: Path, *, image: bool = False) -> Path:
    path = folder / "1.logbuffer"
    path.unlink(missing_ok=True)
    admin.create_log(
        LogParams(
            path=str(path), correlation_id=1, session_id=5, stream_id=6, initial_term_id=INITIAL,
            term_id=INITIAL, term_offset=0, term_length=TERM, mtu=1408, page_size=4096,
            type=2 if image else 0, file_mode=0o600, reserve_terms=3,
        )
    )
    return path


def write(path: Path, position: int, length: int, *, term: int | None = None,
          offset: int | None = None, kind: int = 1) -> int:
    """A frame of ``length`` bytes; the position behind it."""
    term_id = INITIAL + position // TERM if term is None else term
    frame = HEADER.pack(length, 0, 0xC0, kind, position % TERM if offset is None else offset,
                        5, 6, term_id, 0)
    with path.open("r+b") as file:
        file.seek(position // TERM % 3 * TERM + position % TERM)
        file.write(frame)
    return position + (length + 31) // 32 * 32


def test_the_end_is_where_frames_stop(tmp_path: Path) -> None:
    path = make(tmp_path)
    reader = GroupLog(str(path))
    assert reader.facts.session_id == 5
    assert reader.end(0, 1 << 20) == 0
    position = 0
    for length in (32, 33, 1408, 100):
        position = write(path, position, length)
    assert reader.end(0, 1 << 20) == position
    assert reader.end(32, 1 << 20) == position
    assert reader.end(0, 64) == 96          # no more than requested, and the frame it ends in
    assert reader.end(8, 1 << 20) == 8
    reader.close()


def test_an_end_goes_on_in_the_next_term(tmp_path: Path) -> None:
    path = make(tmp_path)
    position = write(path, 0, TERM - 64)
    position = write(path, position, 64, kind=0)
    assert position == TERM
    position = write(path, position, 320)
    reader = GroupLog(str(path))
    assert reader.end(0, 1 << 20) == TERM + 320
    assert reader.cut(0, TERM + 320, 1 << 20) == TERM       # a piece lies in one term
    assert reader.cut(TERM, TERM + 320, 1 << 20) == TERM + 320
    assert len(reader.copy(TERM, TERM + 320)) == 320
    with pytest.raises(ValueError, match="not within a term"):
        reader.copy(TERM - 32, TERM + 32)
    reader.close()


@pytest.mark.parametrize("fields", [
    {"length": 31}, {"length": -64}, {"length": TERM + 1}, {"length": 64, "offset": 32},
    {"length": 64, "term": INITIAL + 3}, {"length": 64, "term": INITIAL - 1},
])
def test_what_is_no_frame_of_its_place_ends_the_walk(
    tmp_path: Path, fields: dict[str, int]
) -> None:
    path = make(tmp_path)
    position = write(path, 0, 64)
    write(path, position, **fields)
    reader = GroupLog(str(path))
    assert reader.end(0, 1 << 20) == position
    assert reader.cut(0, TERM, 1 << 20) == position
    with pytest.raises(PenstockError, match="no whole frame"):
        reader.cut(position, TERM, 1 << 20)
    reader.close()


def test_one_frame_is_admitted_whatever_its_length(tmp_path: Path) -> None:
    path = make(tmp_path)
    end = write(path, write(path, 0, 4096, kind=0), 32)
    reader = GroupLog(str(path))
    assert reader.cut(0, end, 1024) == 4096
    with pytest.raises(PenstockError):
        reader.cut(0, 2048, 1024)       # but never beyond what was requested
    reader.close()


def test_producers_stand_where_their_tail_is(tmp_path: Path) -> None:
    reader = GroupLog(str(make(tmp_path)))
    assert reader.producer() == 0
    reader.close()
    reader = GroupLog(str(make(tmp_path, image=True)))
    assert reader.producer() == 2**63 - 1
    reader.close()


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(4096))
    for name in (path, tmp_path / "none"):
        with pytest.raises(PenstockError):
            GroupLog(str(name))


@given(st.lists(st.integers(32, 3000), min_size=1, max_size=15), st.integers(1, 9000))
def test_cuts_are_frame_boundaries_and_cover_everything(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], piece: int
) -> None:
    path = make(tmp_path_factory.getbasetemp())
    ends = [0]
    for length in lengths:
        ends.append(write(path, ends[-1], length))
    reader = GroupLog(str(path))
    at, seen = 0, []
    while at < ends[-1]:
        to = reader.cut(at, ends[-1], piece)
        assert to in ends
        single = ends.index(to) - ends.index(at) == 1
        assert to - at <= piece or single
        seen.append(to)
        at = to
    assert seen[-1] == ends[-1]
    reader.close()
