# SPDX-License-Identifier: Apache-2.0
"""Options of the Spark sink: what is taken, and what is said of mistakes."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    BinaryType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from penstock.core.errors import InvalidArgument
from penstock.spark_bridge._sink import stream_writer
from penstock.spark_bridge._sink_options import SinkOptions, check_schema, read_options

CHANNEL = "aeron:udp?endpoint=127.0.0.1:24001"
NEEDED = {"channel": CHANNEL, "streamid": "7"}


def schema(**columns: type) -> StructType:
    return StructType([StructField(name, kind()) for name, kind in columns.items()])


def test_what_is_not_given_has_its_default() -> None:
    assert read_options(NEEDED) == SinkOptions(channel=CHANNEL, stream_id=7)
    assert read_options(NEEDED).timeout_s == 30.0


def test_all_options_in_any_spelling_of_case() -> None:
    given = {
        **NEEDED, "daemonDir": "/dev/shm/x", "TIMEOUT": "500ms", "payload": "ARROW",
        "keyColumn": "symbol", "maxKeys": "3", "markers": "false", "drain": "consumed",
        "writeId": "left", "checkpointLocation": "somewhere",
    }  # fmt: skip
    assert read_options(given) == SinkOptions(
        channel=CHANNEL, stream_id=7, directory="/dev/shm/x", timeout_ns=500_000_000, arrow=True,
        key_column="symbol", max_keys=3, markers=False, drain="consumed", write_id="left",
        job_commit=False,
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"channel": ""}, "option channel is missing: give an Aeron URI"),
        ({"channel": "aeron:tcp?endpoint=x:1"}, "option channel=aeron:tcp"),
        ({"channel": f"{CHANNEL}|session-id=4"}, "session-id cannot be given: leave it out"),
        ({"channel": "aeron-spy:aeron:ipc"}, "a spy only subscribes"),
        ({"channel": f"{CHANNEL}|channel-snd-ts-offset=8"},
         "option markers=true: channel-snd-ts-offset=8 of .* overwrites the markers .* least 104"),
        ({"channel": f"{CHANNEL}|channel-snd-ts-offset=reserved"}, "overwrites the markers"),
        ({"channel": f"{CHANNEL}|channel-snd-ts-offset=200", "payload": "arrow"},
         "option payload=arrow: channel-snd-ts-offset=200 of .* overwrites Arrow data"),
        ({"streamid": ""}, "option streamId=: an integer from -2147483648"),
        ({"streamid": "2147483648"}, "option streamId=2147483648"),
        ({"timeout": "30"}, 'option timeout=30: a time such as "30s"'),
        ({"timeout": "0s"}, "option timeout=0s"),
        ({"payload": "json"}, "option payload=json: binary, arrow are accepted"),
        ({"drain": "all"}, "option drain=all: sent, consumed, none are accepted"),
        ({"markers": "no"}, "option markers=no: true, false are accepted"),
        ({"markers": "false", "jobId": "a"}, "jobId and jobCommit go with markers=true"),
        ({"maxkeys": "0"}, "option maxKeys=0: an integer from 1"),
        ({"timout": "3s"}, r"option timout: the sink has no such .* did you mean timeout\?"),
    ],
)
def test_a_mistake_names_the_option_and_the_fix(changes: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        read_options({**NEEDED, **changes})


def test_time_stamps_that_leave_all_bytes_intact_are_accepted() -> None:
    for where, markers in (("104", "true"), ("8", "false"), ("reserved", "false")):
        channel = f"{CHANNEL}|channel-snd-ts-offset={where}"
        assert read_options({**NEEDED, "channel": channel, "markers": markers}).channel == channel
    read_options({**NEEDED, "channel": f"{CHANNEL}|media-rcv-ts-offset=8"})     # of its readers


def test_a_streaming_query_is_no_job() -> None:
    with pytest.raises(InvalidArgument, match=r"option jobId=a: is for df\.write"):
        stream_writer({**NEEDED, "jobId": "a"}, schema(value=StringType))


@pytest.mark.parametrize("given", [
    {}, {"path": "/warehouse/t"}, {"owner": "me", "option.channel": CHANNEL},
])
def test_a_table_has_no_options_and_the_error_states_what_works(given: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match=r"options of a table .*use df\.write\.format"):
        read_options(given)


def test_a_missing_stream_id_is_named() -> None:
    with pytest.raises(InvalidArgument, match="option streamId is missing"):
        read_options({"channel": CHANNEL})


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({}, {"value": BinaryType}),
        ({}, {"value": StringType}),
        ({"keycolumn": "k"}, {"k": LongType, "value": StringType}),
        ({"payload": "arrow"}, {"a": DoubleType, "b": LongType}),
        ({"payload": "arrow", "keycolumn": "k"}, {"k": StringType, "b": LongType}),
    ],
)
def test_schemas_that_can_be_sent(options: dict[str, str], columns: dict[str, type]) -> None:
    check_schema(read_options({**NEEDED, **options}), schema(**columns))


@pytest.mark.parametrize(
    ("options", "columns", "said"),
    [
        ({}, {"v": BinaryType}, "needs a column value of type binary or string, .* v binary"),
        ({}, {"value": LongType}, r"the columns are value (long|bigint)"),
        ({}, {"value": BinaryType, "when": LongType}, "columns when would not be sent"),
        ({"keycolumn": "k"}, {"value": BinaryType}, "keyColumn=k names no column of type string"),
        ({"keycolumn": "k"}, {"value": BinaryType, "k": DoubleType}, "keyColumn=k names no column"),
        ({"payload": "arrow", "keycolumn": "k"}, {"k": StringType}, "there are none"),
    ],
)
def test_a_schema_that_cannot_be_sent_is_named(
    options: dict[str, str], columns: dict[str, type], said: str
) -> None:
    with pytest.raises(InvalidArgument, match=said):
        check_schema(read_options({**NEEDED, **options}), schema(**columns))
