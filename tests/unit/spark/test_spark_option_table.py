# SPDX-License-Identifier: Apache-2.0
"""The tables of options on the user's pages are those that the code has."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import InvalidArgument
from penstock.spark_bridge import _kafka, _option_table, _options, _sink_options

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


@pytest.mark.parametrize(("rows", "page"), [
    (_kafka.SOURCE, "spark.md"), (_kafka.SINK, "spark-sink.md"),
])
def test_the_page_has_the_table_of_kafkas_options(
    rows: tuple[_kafka.Row, ...], page: str
) -> None:
    assert _kafka.lines(rows) in (DOCS / page).read_text(encoding="utf-8")


#: Of Spark's page about Kafka, and its code (KafkaSourceProvider).
KAFKAS = (
    "kafka.bootstrap.servers", "subscribe", "assign", "subscribePattern", "kafka.group.id",
    "groupIdPrefix", "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions",
    "maxRecordsPerPartition", "failOnDataLoss", "includeHeaders", "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs",
)
OTHERS = ("kafka.isolation.level", "kafka.ssl.truststore.location", "kafka.max.poll.records")


@pytest.mark.parametrize("option", [*KAFKAS, *OTHERS])
def test_each_option_of_kafkas_source_exists_or_is_replaced_by_name(option: str) -> None:
    instead = _kafka.replacement(_kafka.SOURCE, option)
    assert instead
    if option in _options.NAMES.values():
        return
    with pytest.raises(InvalidArgument) as raised:
        _options.read_options({
            "channel": "aeron:ipc", "streamid": "1", "subscription": "s", option.lower(): "1",
        })
    assert f"no such option. {instead} It has: " in str(raised.value)
    assert "did you mean" not in str(raised.value)


@pytest.mark.parametrize("option", ["topic", "kafka.bootstrap.servers", "kafka.acks"])
def test_each_option_of_kafkas_sink_is_replaced_by_name(option: str) -> None:
    with pytest.raises(InvalidArgument, match=r"penstock has .+\.$"):
        _sink_options.read_options({"channel": "aeron:ipc", "streamid": "1", option: "1"})
