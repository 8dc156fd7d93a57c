# SPDX-License-Identifier: Apache-2.0
"""State which penstock option replaces which option of Spark's Kafka connector. The manual's tables
are generated from these texts, and errors about unknown options quote them.

``python -m penstock.spark_bridge._kafka`` prints the tables of the source and of the sink.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

Row = tuple[str, str]

#: Options of the Kafka source, and what replaces each.
SOURCE: Final[tuple[Row, ...]] = (
    ("`kafka.bootstrap.servers`", "`daemonDir`, or `control` with keys"),
    ("`subscribe`", "`channel` and `streamId`, or `streams`"),
    ("`assign`", "`sessions`"),
    ("`subscribePattern`", "none; list the streams in `streams`"),
    (
        "`kafka.group.id`, `groupIdPrefix`",
        "`subscription`; this option is required, because the sender waits for the subscription",
    ),
    (
        "`startingOffsets`, `endingOffsets`",
        "the options with the same names; a position replaces the offset, a session replaces the "
        "partition",
    ),
    ("`startingTimestamp`, `endingTimestamp`", "the same"),
    (
        "`startingOffsetsByTimestamp`, `endingOffsetsByTimestamp`",
        "`startingTimestamp` and `endingTimestamp`, which apply to all sessions",
    ),
    (
        "`startingOffsetsByTimestampStrategy`",
        "none; if a session has no message at or after `startingTimestamp`, the query begins at "
        "the end of this session's data",
    ),
    (
        "`maxOffsetsPerTrigger`, `minOffsetsPerTrigger`, `maxTriggerDelay`",
        "the same; also `maxBytesPerTrigger`",
    ),
    ("`minPartitions`, `maxRecordsPerPartition`", "the same"),
    ("`failOnDataLoss`", "the same"),
    (
        "`includeHeaders`",
        "`includeHeaders`, with the entries `reserved_value`, `session_id`, `stream_id`, `key`",
    ),
    (
        "`fetchOffset.numRetries`, `fetchOffset.retryIntervalMs`, `kafkaConsumer.pollTimeoutMs`",
        "`retry`: a time",
    ),
    ("`kafka.isolation.level`", "`readCommitted`"),
    (
        "`kafka.security.protocol`, `kafka.ssl.*`, `kafka.sasl.*`",
        "`keyFile`, and `serverKey`, `serverKeyFile` or `serverKeys`",
    ),
    ("other `kafka.*`", "none; the source has no Kafka consumer"),
)

#: Options of the Kafka sink, and what replaces each.
SINK: Final[tuple[Row, ...]] = (
    ("`kafka.bootstrap.servers`", "`daemonDir`"),
    ("`topic`", "`channel` and `streamId`"),
    ("`includeHeaders`", "none; a message has no headers"),
    ("other `kafka.*`", "none; the sink has no Kafka producer"),
)


def replacement(rows: tuple[Row, ...], option: str) -> str:
    """Return what replaces an option of Kafka's connector, as a sentence for an error; return an
    empty text if the connector has no such option."""
    known = _known(rows)
    key = option.lower()
    text = known.get(key) or next(
        (text for name, text in known.items() if name.endswith("*") and key.startswith(name[:-1])),
        "",
    )
    return f"Spark's Kafka connector has this option; penstock has {text}." if text else ""


def _known(rows: tuple[Row, ...]) -> Mapping[str, str]:
    return {
        name.lower(): text.replace("`", "")
        for names, text in rows for name in re.findall(r"`([^`]+)`", names)
    }


def lines(rows: tuple[Row, ...]) -> str:
    """Return the rows as lines of a table in Markdown."""
    return "".join(f"| {names} | {text} |\n" for names, text in rows)


if __name__ == "__main__":
    print(lines(SOURCE))
    print(lines(SINK))
