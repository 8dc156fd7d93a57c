# SPDX-License-Identifier: Apache-2.0
"""Find the positions between messages at which a range is split into tasks."""

from __future__ import annotations

from typing import Final

import attrs

from penstock.client import RangeNotRetained
from penstock.spark_bridge._planner import Range, View, Want
from penstock.spark_bridge._subscription import Subscription

CUT_BYTES: Final = 64 * 1024 * 1024     # most bytes that a daemon walks at once
_FEW_PIECES: Final = 8


class Splitting:
    """One for each query."""

    def __init__(self, questions: Subscription) -> None:
        self._questions = questions

    def every(self, view: View, item: Range, records: int) -> list[int]:
        """Return the positions at which to split a range, so that each of the resulting ranges has
        at most ``records`` messages (0: no limit).
        """
        places: list[int] = []
        at = item.start
        while records > 0 and at < item.end:
            want = view.want(item.session, at, min(item.end - at, CUT_BYTES))
            if want is None:
                break
            try:
                place, _ = self._questions.cut(want, max_messages=records)
            except RangeNotRetained:
                break
            if place <= at:
                break
            places.append(place)
            at = place
        return places

    def places(self, view: View, item: Range, pieces: int) -> list[int]:
        """Return the positions at which to split a range into ``pieces`` ranges of about equal
        length. If no daemon can answer, return no position.
        """
        places: list[int] = []
        at, done = item.start, 0
        even = item.length / pieces
        while done < pieces and pieces > 1 and at < item.end:
            want = view.want(item.session, at, 0)
            if want is None:
                break
            # The end is known: a few pieces are found one by one, without a walk over the last.
            if done == pieces - 1:
                break
            # As many pieces as one request walks over; of a piece longer than that, a stretch.
            reach = int((at + CUT_BYTES - item.start) / even)
            whole = want.holding.log.end_position >= item.end
            count = max(1, min(pieces, reach) - done) if pieces > _FEW_PIECES and whole else 1
            target = item.start + round(even * (done + count))
            length = min(target - at, CUT_BYTES)
            if length < 1:              # a message was longer than a piece
                done += count
                continue
            want = attrs.evolve(want, max_bytes=length)
            try:
                found = self._pieces(want, count)
            except RangeNotRetained:
                break
            if not found or found[-1] <= at:
                break
            at = found[-1]
            if length == target - want.start or target - at <= even / 16:
                places += found
                done += count
        return places

    def _pieces(self, want: Want, count: int) -> list[int]:
        if count == 1:
            return [self._questions.cut(want)[0]]
        places, _ = self._questions.cut_places(
            want, max_bytes=want.max_bytes, max_messages=0, pieces=count
        )
        return places
