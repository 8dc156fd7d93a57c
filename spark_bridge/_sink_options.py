# SPDX-License-Identifier: Apache-2.0
"""Read the options of the Spark sink, and check them before a query starts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from penstock.config import uri
from penstock.core.errors import InvalidArgument
from penstock.spark_bridge import _kafka
from penstock.spark_bridge._options import of_table
from penstock.spark_bridge._stamps import check_stamps

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

VALUE: Final = "value"
DEFAULT_TIMEOUT_NS: Final = 30_000_000_000
DEFAULT_MAX_KEYS: Final = 64
DRAINS: Final = ("sent", "consumed", "none")
PAYLOADS: Final = ("binary", "arrow")
_DURATION: Final = re.compile(r"(\d{1,12})(ms|s|m)")
_UNITS_NS: Final = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9}

#: Names in lower case, as Spark passes them, to their documented spelling.
NAMES: Final = {
    name.lower(): name
    for name in (
        "channel", "streamId", "daemonDir", "timeout", "payload", "keyColumn", "maxKeys", "markers",
        "drain", "writeId", "jobId", "jobCommit",
    )
}
#: Options of Spark that also reach a sink.
_SPARKS: Final = frozenset(
    {
        "path", "checkpointlocation", "queryname", "asyncprogresstrackingenabled",
        "asyncprogresstrackingcheckpointintervalms",
    }
)


@attrs.frozen(kw_only=True)
class SinkOptions:
    """The options of a sink, for example the stream on which the tasks publish rows, and the time
    limit of each send.
    """

    channel: str
    stream_id: int
    directory: str | None = None        # None: $PENSTOCK_DIR of the host that runs the task
    timeout_ns: int = DEFAULT_TIMEOUT_NS
    arrow: bool = False                 # a message is an Arrow IPC batch, not a row
    key_column: str | None = None
    max_keys: int = DEFAULT_MAX_KEYS
    markers: bool = True
    drain: str = "sent"
    write_id: str = ""                  # distinguishes several writes of one foreachBatch
    job_id: str = ""                    # of a batch write; a write of the same id repeats it
    job_commit: bool = True             # parts of a batch write count together, or each alone

    @property
    def timeout_s(self) -> float:
        return self.timeout_ns / 1e9


def read_options(options: Mapping[str, str]) -> SinkOptions:
    """Read and check the options of a Spark writer.

    :raises InvalidArgument: an option is wrong; the text names it, its value and the accepted
        values.
    """
    given = {key.lower(): value for key, value in options.items()}
    if of_table(given) or not set(given) - _SPARKS:
        raise InvalidArgument(
            "the sink got no options: give channel and streamId. Spark does not pass the options "
            "of a table (INSERT INTO, CREATE TABLE name USING penstock AS SELECT): use "
            'df.write.format("penstock").option(...)'
        )
    _check_names(given)
    channel = given.get("channel", "")
    if not channel:
        raise InvalidArgument(
            "option channel is missing: give an Aeron URI, e.g. aeron:udp?endpoint=10.0.0.2:40456"
        )
    _check_channel(channel)
    markers = _choice(given, "markers", ("true", "false")) == "true"
    if not markers and ("jobid" in given or "jobcommit" in given):
        raise InvalidArgument(
            "options jobId and jobCommit go with markers=true: without markers a reader "
            "cannot recognise the rows of a failed job: leave markers out"
        )
    arrow = _choice(given, "payload", PAYLOADS) == "arrow"
    check_stamps(channel, committed="markers=true" if markers else "", arrow=arrow, sends=True)
    return SinkOptions(
        channel=channel,
        stream_id=_integer(given, "streamId", None, -(2**31), 2**31 - 1),
        directory=given.get("daemondir") or None,
        timeout_ns=_duration(given, "timeout", DEFAULT_TIMEOUT_NS),
        arrow=arrow,
        key_column=given.get("keycolumn") or None,
        max_keys=_integer(given, "maxKeys", DEFAULT_MAX_KEYS, 1, 65_536),
        markers=markers,
        drain=_choice(given, "drain", DRAINS),
        write_id=given.get("writeid", ""),
        job_id=given.get("jobid", ""),
        job_commit=markers and _choice(given, "jobCommit", ("true", "false")) == "true",
    )


def check_schema(options: SinkOptions, schema: StructType) -> None:
    """Check that rows of ``schema`` can be sent.

    :raises InvalidArgument: the sink cannot send a column; the exception's text names the column
    and the remedy.
    """
    types = {field.name: field.dataType.typeName() for field in schema.fields}
    listed = ", ".join(f"{name} {kind}" for name, kind in types.items()) or "none"
    key = options.key_column
    if key is not None and types.get(key) not in ("string", "binary", "integer", "long"):
        raise InvalidArgument(
            f"option keyColumn={key} names no column of type string, binary, int or bigint: the "
            f"columns are {listed}"
        )
    if options.arrow:
        if not set(types) - {key}:
            raise InvalidArgument(
                "payload=arrow sends the columns other than the key, but there are none"
            )
        return
    if types.get(VALUE) not in ("binary", "string"):
        raise InvalidArgument(
            f"payload=binary needs a column {VALUE} of type binary or string, but the columns are "
            f"{listed}: rename a column to {VALUE}, or set payload=arrow"
        )
    others = set(types) - {VALUE, key}
    if others:
        raise InvalidArgument(
            f"columns {', '.join(sorted(others))} would not be sent: select only {VALUE}"
            + (f" and {key}" if key is not None else "") + ", or set payload=arrow"
        )


def _check_names(given: Mapping[str, str]) -> None:
    for name in given:
        if name in NAMES or name in _SPARKS:
            continue
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"; did you mean {NAMES[near[0]]}?" if near else ""
        if instead := _kafka.replacement(_kafka.SINK, name):
            hint = f". {instead}"
        raise InvalidArgument(
            f"option {name}: the sink has no such option; its options are "
            f"{', '.join(sorted(NAMES.values()))}{hint}"
        )


def _check_channel(channel: str) -> None:
    try:
        parsed = uri.parse(channel)
        uri.check_publication(parsed)
    except ValueError as error:
        raise InvalidArgument(f"option channel={channel}: {error}") from None
    if parsed.session_id is not None:
        raise InvalidArgument(
            f"option channel={channel}: each task has a session of its own, so session-id cannot "
            "be given: leave it out"
        )


def _integer(
    given: Mapping[str, str], name: str, default: int | None, low: int, high: int
) -> int:
    text = given.get(name.lower())
    if text is None:
        if default is None:
            raise InvalidArgument(f"option {name} is missing: an integer from {low} to {high}")
        return default
    try:
        value = int(text)
    except ValueError:
        value = high + 1
    if not low <= value <= high:
        raise InvalidArgument(f"option {name}={text}: an integer from {low} to {high} is accepted")
    return value


def _duration(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    match = _DURATION.fullmatch(text)
    value = int(match[1]) * _UNITS_NS[match[2]] if match else 0
    if not 0 < value < 2**63:
        raise InvalidArgument(f'option {name}={text}: a time such as "30s" or "500ms" is accepted')
    return value


def _choice(given: Mapping[str, str], name: str, accepted: tuple[str, ...]) -> str:
    """Return the choice; the first is the default."""
    value = given.get(name.lower(), accepted[0]).lower()
    if value not in accepted:
        raise InvalidArgument(f"option {name}={value}: {', '.join(accepted)} are accepted")
    return value


def plain(options: Any) -> dict[str, str]:
    """Return Spark's case-insensitive options as a dictionary."""
    return {str(key): str(options[key]) for key in options}
