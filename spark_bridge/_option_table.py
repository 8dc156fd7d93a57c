# SPDX-License-Identifier: Apache-2.0
"""Describe the options of the Spark source and sink; the tables in the manual are generated from
these texts.

``python -m penstock.spark_bridge._option_table`` prints the two tables (source and sink). A test
compares the two tables with the pages of the manual, and with the options that the code reads.
"""

from __future__ import annotations

import re
from typing import Final

#: Names, default, meaning.
SOURCE: Final = (
    (
        "`channel`",
        "required",
        "an Aeron URI, or several with commas between them",
    ),
    (
        "`streamId`",
        "required",
        "a stream id, or several with commas between them; the source reads each stream id on "
        "each channel",
    ),
    (
        "`streams`",
        "",
        "replaces the two options above: JSON, `[{\"channel\": \"aeron:ipc\", \"streamId\": "
        "1001}]`",
    ),
    (
        "`sessions`",
        "all",
        "the source reads only the sessions with these ids, with commas between them",
    ),
    (
        "`subscription`",
        "required",
        "the name of the consumer group under which the daemons keep the query's progress. "
        "Each query needs a different name",
    ),
    (
        "`startingOffsets`",
        "`latest`, batch: `earliest`",
        "where a *new* query begins: at the current end, at the oldest retained position, or at "
        "positions given in JSON, "
        '`{"CHANNEL\\|STREAM\\|SESSION\\|INITIAL TERM ID": position}`. '
        "If the query has a checkpoint, the query continues at the stored position, and this "
        "option has no effect. If only its subscription exists, the query continues at the stored "
        "position, or at the stated position if this is later",
    ),
    (
        "`endingOffsets`",
        "`latest`",
        "batch only: `latest` or JSON as above",
    ),
    (
        "`maxBytesPerTrigger`",
        "none",
        "bytes of log (with headers and padding) in a batch, such as `64m`; a batch can always "
        "contain one message of each session",
    ),
    (
        "`maxOffsetsPerTrigger`",
        "none",
        "messages in a batch",
    ),
    (
        "`minPartitions`",
        "one task per core of the driver's host, each with at least 256 KiB",
        "number of reading tasks. On a cluster, set this option to the number of task slots",
    ),
    (
        "`minOffsetsPerTrigger`",
        "none",
        "smallest number of messages in a batch. A batch starts with fewer messages if half of "
        "a session's window is full, if another limit allows no more, or after "
        "`maxTriggerDelay`",
    ),
    (
        "`maxTriggerDelay`",
        "`15m`",
        "with `minOffsetsPerTrigger`: the longest time between two batches while there is"
        " data",
    ),
    (
        "`startingTimestamp`",
        "none",
        "replaces `startingOffsets`: milliseconds since 1970. A new query begins with the "
        "messages that arrived at this time or later",
    ),
    (
        "`endingTimestamp`",
        "none",
        "batch reads only, replaces `endingOffsets`: the batch ends before the messages that "
        "arrived at this time or later",
    ),
    (
        "`maxRecordsPerPartition`",
        "none",
        "largest number of messages in a reading task; if a batch has more messages, the "
        "source makes more tasks",
    ),
    (
        "`failOnDataLoss`",
        "`true`",
        "with `true`, the query fails if data was lost. `false`: if data was lost, the query "
        "continues with a warning and counts the lost bytes in `lostBytes`",
    ),
    (
        "`readCommitted`",
        "of sessions with markers",
        "with `true`, the source reads only complete parts of a penstock sink, each once, without "
        "their BEGIN and COMMIT messages (markers). `false`: it reads all messages. If the option "
        "`readCommitted` is absent, the source behaves as with `true` for each session that has "
        "markers",
    ),
    (
        "`ackOn`",
        "`batch`",
        "the moment at which the source acknowledges a batch; choose `commit` for queries with "
        "asynchronous progress tracking",
    ),
    (
        "`withholdOnCheckpoint`",
        "`false`",
        "with `true`, no message is in flight at a checkpoint: see [checkpoints without messages "
        "in flight](#checkpoints-without-messages-in-flight)",
    ),
    (
        "`groupExpiry`",
        "`10m`, batch `60s`",
        "time for which the daemon retains data for a query that does not run",
    ),
    (
        "`retry`",
        "`30s`",
        "time for which the query waits for a daemon that does not answer",
    ),
    (
        "`payload`",
        "`binary`",
        "`arrow`: see above",
    ),
    (
        "`arrowSchema`, `includeMetadata`",
        "",
        "with `payload=arrow`",
    ),
    (
        "`includeHeaders`",
        "`false`",
        "adds the column `headers`: see [columns](#columns)",
    ),
    (
        "`batchBytes`",
        "`4m`",
        "bytes of payload in one Arrow batch that the source passes to Spark, `64k` to `1g`",
    ),
    (
        "`daemonDir`",
        "`$PENSTOCK_DIR`, else `/dev/shm/penstock-$USER`",
        "directory of this host's daemon",
    ),
    (
        "`control`",
        "",
        "daemons of other hosts: `tcp://HOST:PORT`, with commas between them",
    ),
    (
        "`keyFile`",
        "with `control`",
        "Spark's key: the `.key_secret` file of `penstock keygen`, at the same path on all "
        "hosts",
    ),
    (
        "`serverKey`, `serverKeyFile`, `serverKeys`",
        "one of them with `control`",
        "the daemons' public key, a file that holds the key, or JSON `{\"tcp://HOST:PORT\": "
        '"key"}`',
    ),
    (
        "`locality`",
        "`none`",
        "`barrier`: see [locality](#locality)",
    ),
)

#: Names, default, meaning.
SINK: Final = (
    (
        "`channel`, `streamId`",
        "required",
        "the target stream; its channel must have no `session-id`",
    ),
    (
        "`daemonDir`",
        "the executor's `$PENSTOCK_DIR`, else `/dev/shm/penstock-$USER`",
        "the daemon of the host that runs the task",
    ),
    (
        "`timeout`",
        "`30s`",
        "time for which a task waits for room in the log, or for a receiver, before the task "
        "fails",
    ),
    (
        "`payload`",
        "`binary`",
        "`binary`: the sink publishes the column `value` (binary or string), one message for "
        "each row. `arrow`: the sink publishes all columns; each message is an Arrow IPC "
        "batch, at most as long as the channel's longest message. With `arrow`, the schema "
        "precedes the batches of a task",
    ),
    (
        "`keyColumn`",
        "none",
        "name of a column of type string, binary, int or bigint. The sink uses one publication "
        "for each value of the key column, and keeps the order of rows with the same value",
    ),
    (
        "`maxKeys`",
        "64",
        "largest number of keys in one task; a task with more keys fails, because "
        "each key needs a log",
    ),
    (
        "`drain`",
        "`sent`",
        "when a task is done. `sent`: the task waits until the daemon has sent all data of the "
        "task. `consumed`: the task waits until the readers of every receiver have consumed the "
        "data. `none`: the task does not wait after its data is in the log",
    ),
    (
        "`markers`",
        "`true`",
        "publish a BEGIN message before and a COMMIT message after the messages of each task, "
        "see below",
    ),
    (
        "`jobId`",
        "made up",
        "batch writes only: the identity of the write. If a write with the same `jobId` has "
        "already succeeded, readers drop the rows of the new write. In `foreachBatch`, query, "
        "batch and `jobId` together are the identity",
    ),
    (
        "`jobCommit`",
        "`true`",
        "batch writes only: readers get the rows of all tasks together, when the whole write is "
        "done. With `false`, readers get the rows of each task when the task is done",
    ),
    (
        "`writeId`",
        "none",
        "distinguishes several writes of one `foreachBatch` into the same stream. If two of them "
        "have the same `writeId`, the second fails",
    ),
)


def names(rows: tuple[tuple[str, str, str], ...]) -> set[str]:
    """Return the names of the options that have an entry in one of the tables."""
    return {name for row in rows for name in re.findall(r"`(\w+)`", row[0])}


def table(rows: tuple[tuple[str, str, str], ...]) -> str:
    """Return the table in Markdown."""
    lines = ["| Option | Default | |", "|---|---|---|"]
    lines += [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(SOURCE))
    print(table(SINK))
