# SPDX-License-Identifier: Apache-2.0
"""Fuzz target: any message is rows of the declared schema or a PayloadError; what comes out is
valid Arrow that can be read to its last value.  The bytes come from the network and are read by
Arrow's native code: a fault ends the process, which is a finding too."""

from __future__ import annotations

import struct
import sys
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.spark_bridge._decode import Decoder, Messages, PayloadError
from penstock.spark_bridge._options import SourceOptions, StreamName

_OPTIONS = SourceOptions(
    streams=(StreamName(channel="aeron:ipc", stream_id=7),), subscription="s", payload="arrow",
    arrow_schema="id bigint, name string",
)
_DECODER = Decoder(
    _OPTIONS, StructType([StructField("id", LongType()), StructField("name", StringType())])
)
_EMPTY = Messages(
    value=pa.array([b""], pa.binary()), positions=np.array([64], np.int64),
    reserved_values=np.array([0], np.int64), channel="aeron:ipc", stream_id=7, session_id=-9,
    host="here", time_positions=np.array([], np.int64), times_us=np.array([], np.int64),
)
WORDS = [
    b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"ARROW1", *(struct.pack("<i", n) for n in (
        1, -1, 8, 16, 64, 1 << 20, 2**31 - 1, -(2**31))),
    *(struct.pack("<q", n) for n in (1, -1, 64, 1 << 40, 2**63 - 1, -(2**63))), b"id\0", b"name\0",
]


def rows(message: bytes) -> list[dict[str, Any]]:
    value = pa.array([message], pa.binary())
    found = []
    for batch in _DECODER.decode(attrs.evolve(_EMPTY, value=value)):
        batch.validate(full=True)
        assert batch.schema == _DECODER.schema
        found += batch.slice(0, 1000).to_pylist()
    return found


def target(data: bytes) -> None:
    try:
        for row in rows(data):
            assert row["id"] is None or isinstance(row["id"], int)
            assert row["name"] is None or isinstance(row["name"], str)
    except PayloadError as error:
        assert "message at position 64" in str(error)


if __name__ == "__main__":
    from _mutate import main

    sys.exit(main(target, "payload", WORDS))
