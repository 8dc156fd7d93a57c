# SPDX-License-Identifier: Apache-2.0
"""What a plan of committed rows states of itself: that a limit leaves out a part that has arrived,
and how many parts are left out for ever."""

from __future__ import annotations

import pytest
from test_spark_commits import Log, Query, part_of

from penstock.spark_bridge import _planner


@pytest.mark.parametrize(("limits", "limited"), [
    ({}, False), ({"max_messages": 5}, False), ({"max_messages": 4}, True),
    ({"max_bytes": 224}, True),
])
def test_a_batch_states_that_a_limit_leaves_out_a_whole_part(
    limits: dict[str, int], limited: bool
) -> None:
    """Then minOffsetsPerTrigger has nothing to wait for; an open part is no reason."""
    log = Log(0)
    log.send(part_of(1), ["a", "b"])
    log.send(part_of(2), ["c", "d", "e"])
    log.begin(part_of(3))
    log.seen = len(log.frames)
    query = Query([log])
    found = _planner.wants(query.view(), query.offset, max_bytes=limits.get("max_bytes", 2**40))
    whole = query.commits.plan(
        query.view(), query.offset, found, max_messages=limits.get("max_messages", 0)
    )
    assert whole.messages == (2 if limited else 5)
    assert whole.limited is limited


def test_a_part_without_a_commit_is_counted_with_the_batch_that_leaves_it_out() -> None:
    """A plan may be discarded, such as one with too few messages; then nothing is counted."""
    log = Log(0)
    log.begin(part_of(1))
    log.frames += ["a"]
    log.send(part_of(2), ["b"])
    log.seen = len(log.frames)
    query = Query([log])
    found = _planner.wants(query.view(), query.offset, max_bytes=2**40)
    for _ in range(2):
        whole = query.commits.plan(query.view(), query.offset, found)
        assert (whole.messages, whole.broken) == (1, 1)
