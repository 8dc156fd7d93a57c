# SPDX-License-Identifier: Apache-2.0
"""Fuzz target: any JSON object is an offset of the Spark source or an InvalidArgument, and an
offset reads as it was written; any text is a value of startingOffsets and streams, or an
InvalidArgument."""

from __future__ import annotations

import json
import sys

from penstock.core.errors import InvalidArgument
from penstock.spark_bridge._offsets import Offset
from penstock.spark_bridge._options import read_options

WORDS = [
    b"from|", b"end|", b"group|", b"aeron:ipc", b"aeron:udp?endpoint=10.0.0.1:40456", b"|", b"|-1",
    b'"', b'": ', b", ", b"{", b"}", b"[", b"]", b"4096", b"33", b"-32", b"true", b"null", b"1e3",
    b"NaN", b"9223372036854775776", b"9223372036854775808", b"1_0", "\u0661".encode(), b"\\u0000",
    b'"channel"', b'"streamId"', b"latest", b"earliest", b"0" * 5000,
]


def check_options(text: str) -> None:
    for name in ("startingOffsets", "streams"):
        options = {"subscription": "s", name: text}
        if name != "streams":
            options |= {"channel": "aeron:ipc", "streamId": "1"}
        try:
            read_options(options)
        except InvalidArgument as error:
            assert str(error)


def target(data: bytes) -> None:
    text = data.decode("utf-8", errors="replace")
    check_options(text)
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        return
    if not isinstance(plain, dict):
        return
    try:
        offset = Offset.from_plain(plain)
    except InvalidArgument:
        return
    written = json.loads(json.dumps(offset.to_plain()))
    assert Offset.from_plain(written) == offset
    assert list(written) == sorted(written)


if __name__ == "__main__":
    from _mutate import main

    sys.exit(main(target, "offsets", WORDS))
