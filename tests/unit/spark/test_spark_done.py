# SPDX-License-Identifier: Apache-2.0
"""What an offset keeps of the parts that a query has read."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidArgument
from penstock.spark_bridge._brackets import Done
from penstock.spark_bridge._offsets import Offset, Session
from penstock.spark_bridge.markers import Content, Part

QUERY = UUID(int=1)
CONTENT = Content(messages=1, rows=1, digest=5)


def part_of(epoch: int, partition: int = 0, **fields: Any) -> Part:
    return Part(
        query=QUERY, run=UUID(int=2), epoch=epoch, partition=partition, attempt=0, **fields
    )


@given(parts=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5),
                                st.sampled_from([b"", b"k"])), max_size=60), often=st.booleans())
def test_what_was_read_is_known_after_any_number_of_restarts(
    parts: list[tuple[int, int, bytes]], often: bool
) -> None:
    done = Done()
    for epoch, partition, key in parts:
        done.add(part_of(epoch, partition, key=key), CONTENT)
        if often:
            done = Done.from_plain(json.loads(json.dumps(done.to_plain())))
    done = Done.from_plain(json.loads(json.dumps(done.to_plain())))
    for epoch in range(41):
        for partition in range(6):
            for key in (b"", b"k"):
                part = part_of(epoch, partition, key=key)
                assert done.knows(part) == ((epoch, partition, key) in parts)


def test_a_long_query_takes_little_room_in_an_offset() -> None:
    done = Done()
    for epoch in range(3000):
        for partition in range(4):
            done.add(part_of(epoch, partition), CONTENT)
        done = Done.from_plain(done.to_plain())
    assert len(json.dumps(done.to_plain())) < 600
    assert done.knows(part_of(1234, 3))
    assert not done.knows(part_of(1234, 4))


def test_what_is_no_offset_is_refused() -> None:
    key = str(Session(channel="aeron:ipc", stream_id=7, session_id=1, initial_term_id=0))
    for plain in (
        {"parts": {"queries": {"x": 1}}}, {"parts": {"jobs": ["x"]}},
        {"parts": {"begun": {"x": "y"}}}, {f"skip|{key}": [[1, 64]]},
        {f"skip|{key}": [[32]]}, {f"skip|{key}": 5}, {f"key|{key}": "xyz"}, {f"key|{key}": 5},
    ):
        with pytest.raises(InvalidArgument):
            Offset.from_plain(plain)
    kept = {f"skip|{key}": [[32, 64]], key: 96, "parts": {"jobs": [f"{QUERY}|3"]}}
    assert Offset.from_plain(kept).to_plain() == dict(sorted(kept.items()))


