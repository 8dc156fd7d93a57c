# SPDX-License-Identifier: Apache-2.0
"""The tables of options on the user's pages are those that the code has."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.spark_bridge import _option_table, _options, _sink_options

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize(("rows", "page", "known"), [
    (_option_table.SOURCE, "spark.md", _options.NAMES),
    (_option_table.SINK, "spark-sink.md", _sink_options.NAMES),
])
def test_the_page_has_the_table_of_the_code(
    rows: tuple[tuple[str, str, str], ...], page: str, known: dict[str, str]
) -> None:
    assert _option_table.names(rows) == set(known.values())
    assert _option_table.table(rows) in (DOCS / page).read_text(encoding="utf-8")


def test_defaults_of_the_table_are_those_of_the_code() -> None:
    read = _options.read_options({"channel": "aeron:ipc", "streamid": "1", "subscription": "s"})
    rows = {name: row[1] for row in _option_table.SOURCE for name in
            _option_table.names((row,))}
    assert rows["groupExpiry"].startswith(f"`{read.expiry_ns // 60_000_000_000}m`")
    assert rows["retry"] == f"`{read.retry_ns // 10**9}s`"
    assert rows["maxTriggerDelay"] == f"`{read.max_delay_ns // 60_000_000_000}m`"
    assert rows["batchBytes"] == f"`{read.batch_bytes // 2**20}m`"
    assert rows["ackOn"] == f"`{read.ack_on}`"
    assert rows["locality"] == f"`{read.locality}`"
    assert rows["payload"] == f"`{read.payload}`"
    assert rows["failOnDataLoss"] == f"`{str(read.fail_on_data_loss).lower()}`"
    assert rows["startingOffsets"].startswith(f"`{read.starting}`")
