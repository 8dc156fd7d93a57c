# SPDX-License-Identifier: Apache-2.0
"""The times in an offset: the same after a round trip, enough for their range, and few."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidArgument
from penstock.spark_bridge import _times

_ENTRIES = st.lists(
    st.tuples(st.integers(1, 2**40), st.integers(0, 2**61)), max_size=60,
).map(lambda rows: [
    (32 * sum(step for step, _ in rows[: n + 1]), when) for n, (_, when) in enumerate(rows)
])


@given(_ENTRIES)
def test_times_come_back_in_microseconds(entries: list[tuple[int, int]]) -> None:
    positions, times = _times.decode(_times.encode(entries))
    assert positions == [at for at, _ in entries]
    assert times == [when // 1000 for _, when in entries]


@given(_ENTRIES, st.integers(0, 2**46), st.integers(0, 2**46))
def test_a_range_keeps_the_entries_that_its_messages_need(
    entries: list[tuple[int, int]], start: int, length: int
) -> None:
    end = start + length
    kept = dict(zip(*_times.decode(_times.bounded(
        [at for at, _ in entries], [when for _, when in entries], start, end
    )), strict=True))
    for position in {start + 1, (start + end) // 2, end, *(at for at, _ in entries)}:
        if start < position <= end:
            whole = next((at for at, _ in entries if at >= position), None)
            assert next((at for at in kept if at >= position), None) == whole
    assert sum(at >= end for at in kept) <= 1


@given(st.text(max_size=40) | st.binary(max_size=40).map(bytes.hex))
def test_what_is_no_times_is_refused(text: str) -> None:
    try:
        positions, _ = _times.decode(text)
    except InvalidArgument as error:
        assert "does not encode arrival times" in str(error)
    else:
        assert positions == sorted(set(positions))


def test_an_offset_stays_small_however_many_sessions_it_has() -> None:
    assert [_times.entries_each(n) for n in (0, 1, 2, 100, 10_000)] == [2048, 2048, 1024, 20, 8]
    text = _times.encode([(4096 * n, 10**18 + 10**6 * n) for n in range(_times.MOST_ENTRIES)])
    assert len(text) < 16 * 1024
    with pytest.raises(InvalidArgument):
        _times.decode(text[:-4])
