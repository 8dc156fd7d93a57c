# SPDX-License-Identifier: Apache-2.0
"""Reading Aeron's loss report: what is there, and anything else that may be in the file."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st
from local_port import LocalPort

from penstock.cli.loss import history, read_report


def _record(count: int, lost: int, session: int, channel: bytes, source: bytes) -> bytes:
    out = struct.pack("<qqqqii", count, lost, 1000, 62_000, session, 7)
    out += struct.pack("<i", len(channel)) + channel
    out += bytes(-len(out) % 4) + struct.pack("<i", len(source)) + source
    return out + bytes(-len(out) % 64)


def test_records_up_to_the_first_empty_one() -> None:
    data = (
        _record(3, 4096, -5, b"aeron:udp?endpoint=10.0.0.2:40456", b"10.0.0.1:5000")
        + _record(1, 64, 6, b"c" * 33, b"s")
        + bytes(64)
        + _record(9, 9, 9, b"never", b"seen")
    )
    rows = read_report(data)
    assert [(row["session_id"], row["observations"], row["bytes"]) for row in rows] == [
        (-5, 3, 4096), (6, 1, 64),
    ]
    assert rows[0]["channel"] == "aeron:udp?endpoint=10.0.0.2:40456"
    assert rows[0]["source"] == "10.0.0.1:5000"
    assert rows[1]["source"] == "s"
    assert rows[0]["first"] == "1970-01-01T00:00:01.000Z"
    assert rows[0]["last"] == "1970-01-01T00:01:02.000Z"


def test_each_gap_is_an_observation(port: LocalPort) -> None:
    """Five reports in half a second tell of 60 gaps: Aeron counts 60, and so does the report."""
    for gaps in (20, 0, 15, 24, 1):
        port.cnc.report_loss(
            epoch_ms=1000, lost_bytes=1408, gaps=gaps, session_id=1, stream_id=2,
            channel="aeron:udp?endpoint=10.0.0.2:40456", source="10.0.0.1:5000", settled=True,
        )
    (row,) = history(port.directory)
    assert (row["observations"], row["bytes"]) == (60, 5 * 1408)


def test_sessions_that_strangers_invent_share_entries(port: LocalPort) -> None:
    """The report keeps room: a stream that has lived for a minute has its own entry."""
    channel = "aeron:udp?endpoint=10.0.0.2:40456"
    for session in range(5000):
        port.cnc.report_loss(
            epoch_ms=1000, lost_bytes=64, gaps=1, session_id=session, stream_id=2, channel=channel,
            source=f"10.1.{session // 250}.{session % 250}:5000", settled=False,
        )
    rows = history(port.directory)
    assert len(rows) <= 1024 + 1
    assert sum(row["bytes"] for row in rows) == 5000 * 64
    assert (rows[-1]["session_id"], rows[-1]["source"]) == (0, "other sources")
    port.cnc.report_loss(
        epoch_ms=2000, lost_bytes=1408, gaps=1, session_id=7, stream_id=2, channel=channel,
        source="10.0.0.1:5000", settled=True,
    )
    last = history(port.directory)[-1]
    assert (last["session_id"], last["bytes"], last["source"]) == (7, 1408, "10.0.0.1:5000")


@given(st.binary(max_size=400))
def test_any_bytes_are_rows_or_none(data: bytes) -> None:
    for row in read_report(data):
        assert row["observations"] > 0


@given(st.integers(0, 200))
def test_a_cut_file_ends_early(length: int) -> None:
    records = [_record(1, 1, 1, b"channel", b"source"), _record(2, 2, 2, b"channel", b"source")]
    padding = [len(record) - len(record.rstrip(b"\0")) for record in records]
    ends = [len(records[0]) - padding[0], sum(map(len, records)) - padding[1]]
    rows = read_report(b"".join(records)[:length])
    assert [row["session_id"] for row in rows] == [1, 2][: sum(end <= length for end in ends)]
