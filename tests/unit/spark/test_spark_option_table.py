# SPDX-License-Identifier: Apache-2.0
"""The tables of options on the user's pages are those that the code has."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import InvalidArgument
from penstock.spark_bridge import _kafka, _option_table, _options, _planner, _sink_options

MINUTE_NS = 60 * 10**9
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


def shown(value: object) -> str:
    """A default as the tables show it."""
    if value is None:
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def defaults(rows: tuple[tuple[str, str, str], ...]) -> dict[str, str]:
    return {name: row[1] for row in rows for name in _option_table.names((row,))}


def test_each_default_of_the_sources_table_is_that_of_the_code() -> None:
    given = {"channel": "aeron:ipc", "streamid": "1", "subscription": "s"}
    read = _options.read_options(given)
    batch = _options.read_options(given, streaming=False)
    for name in given:
        with pytest.raises(InvalidArgument):
            _options.read_options({key: text for key, text in given.items() if key != name})
    assert read.sessions == ()
    assert read.read_committed is None
    assert read.arrow_schema is None
    assert read.include_metadata is False
    assert read.daemons == (_options.Daemon(directory=None),)
    words = {
        **dict.fromkeys(("channel", "streamId", "subscription"), "required"),
        **dict.fromkeys(("streams", "arrowSchema", "includeMetadata", "control"), ""),
        **dict.fromkeys(("serverKey", "serverKeyFile", "serverKeys"), "one of them with `control`"),
        "sessions": "all",
        "readCommitted": "of sessions with markers",
        "daemonDir": "`$PENSTOCK_DIR`, else `/dev/shm/penstock-$USER`",
        "keyFile": "with `control`",
        "minPartitions": "one task per core of the driver's host, each with at least "
                         f"{_planner.SMALLEST_PART // 1024} KiB",
        "startingOffsets": f"{shown(read.starting)}, batch: {shown(batch.starting)}",
        "groupExpiry": f"`{read.expiry_ns // MINUTE_NS}m`, batch `{batch.expiry_ns // 10**9}s`",
        "maxTriggerDelay": f"`{read.max_delay_ns // MINUTE_NS}m`",
        "retry": f"`{read.retry_ns // 10**9}s`",
        "batchBytes": f"`{read.batch_bytes // 2**20}m`",
    }
    values = {
        "endingOffsets": batch.ending, "maxBytesPerTrigger": read.max_bytes,
        "maxOffsetsPerTrigger": read.max_messages, "minOffsetsPerTrigger": read.min_messages,
        "startingTimestamp": read.starting_ns, "endingTimestamp": batch.ending_ns,
        "maxRecordsPerPartition": read.max_records, "failOnDataLoss": read.fail_on_data_loss,
        "ackOn": read.ack_on, "withholdOnCheckpoint": read.withhold, "payload": read.payload,
        "includeHeaders": read.include_headers, "locality": read.locality,
    }
    assert read.min_partitions is None
    expected = words | {name: shown(value) for name, value in values.items()}
    assert defaults(_option_table.SOURCE) == expected


def test_each_default_of_the_sinks_table_is_that_of_the_code() -> None:
    given = {"channel": "aeron:ipc", "streamid": "1"}
    read = _sink_options.read_options(given)
    for name in given:
        with pytest.raises(InvalidArgument):
            _sink_options.read_options({key: text for key, text in given.items() if key != name})
    assert (read.directory, read.write_id, read.job_id, read.arrow) == (None, "", "", False)
    assert defaults(_option_table.SINK) == {
        "channel": "required", "streamId": "required",
        "daemonDir": "the executor's `$PENSTOCK_DIR`, else `/dev/shm/penstock-$USER`",
        "timeout": f"`{read.timeout_ns // 10**9}s`", "payload": "`binary`",
        "keyColumn": shown(read.key_column), "maxKeys": str(read.max_keys),
        "drain": shown(read.drain), "markers": shown(read.markers), "jobId": "made up",
        "jobCommit": shown(read.job_commit), "writeId": "none",
    }


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
