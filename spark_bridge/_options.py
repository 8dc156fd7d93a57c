# SPDX-License-Identifier: Apache-2.0
"""Read the options of the Spark source, and check them before a query starts."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from penstock.config import uri
from penstock.config.protocol.keys import check_public_key, load_public_key
from penstock.core.errors import InvalidArgument, PenstockError
from penstock.spark_bridge import _kafka
from penstock.spark_bridge._checkpoints import check_withhold
from penstock.spark_bridge._stamps import check_stamps

MIB: Final = 1024 * 1024
DEFAULT_EXPIRY_NS: Final = 600 * 10**9
DEFAULT_RETRY_NS: Final = 30 * 10**9
DEFAULT_DELAY_NS: Final = 15 * 60 * 10**9
DEFAULT_BATCH_BYTES: Final = 4 * MIB
MOST_BATCH_BYTES: Final = 1024 * MIB
MOST_SESSIONS: Final = 64
MOST_PARTITIONS: Final = 1024
_DURATION: Final = re.compile(r"(\d{1,12})(ms|s|m|h)")
_UNITS_NS: Final = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_SIZE: Final = re.compile(r"(\d{1,15})([kmg]?)(i?b)?", re.IGNORECASE)
_SIZES: Final = {"": 1, "k": 1024, "m": MIB, "g": 1024 * MIB}

#: Names in lower case, as Spark passes them, to their documented spelling.
NAMES: Final = {
    name.lower(): name
    for name in (
        "channel", "streamId", "sessions", "streams", "subscription", "ackOn", "startingOffsets",
        "endingOffsets", "maxBytesPerTrigger", "maxOffsetsPerTrigger", "minPartitions",
        "maxRecordsPerPartition",
        "failOnDataLoss", "daemonDir", "control", "keyFile", "serverKey", "serverKeyFile",
        "serverKeys", "payload", "arrowSchema", "includeMetadata", "groupExpiry", "batchBytes",
        "retry", "locality", "minOffsetsPerTrigger", "maxTriggerDelay", "startingTimestamp",
        "endingTimestamp", "readCommitted", "includeHeaders",
        "withholdOnCheckpoint",
    )
}
#: Options of the sink, which the source accepts so that both can share options.
_SINKS: Final = frozenset({
    "timeout", "keycolumn", "maxkeys", "markers", "drain", "writeid", "jobid", "jobcommit",
})
#: Options of Spark that also reach a source.
_SPARKS: Final = frozenset({"path", "checkpointlocation", "queryname"})
#: Properties of a table, which Spark passes in place of the table's options.
_TABLES: Final = frozenset({
    "owner", "provider", "location", "comment", "external", "is_managed_location", "collation",
})
#: In lower case, as Spark passes them.
BATCH_ONLY: Final = frozenset({"endingoffsets", "endingtimestamp"})
_STREAM_ONLY: Final = frozenset({
    "ackon", "maxbytespertrigger", "maxoffsetspertrigger", "minoffsetspertrigger",
    "maxtriggerdelay", "withholdoncheckpoint",
})

Bound = Literal["latest", "earliest"] | Mapping[str, int]


@attrs.frozen(kw_only=True)
class StreamName:
    """One stream of one channel."""

    channel: str
    stream_id: int


@attrs.frozen(kw_only=True)
class Daemon:
    """Identifies a daemon that a query uses, either by the daemon's ``directory`` on this host, or
    by its TCP ``address`` and keys.
    """

    directory: str | None = None
    address: str | None = None
    server_key: str = ""

    @property
    def name(self) -> str:
        """Name for messages."""
        return self.address or (self.directory or "the default daemon directory")


@attrs.frozen(kw_only=True)
class SourceOptions:
    """Options of a query, for example its streams, the name of its subscription, and the limits on
    a batch."""

    streams: tuple[StreamName, ...]
    sessions: tuple[int, ...] = ()                  # none: all
    subscription: str
    ack_on: Literal["batch", "commit"] = "batch"
    starting: Bound = "latest"
    ending: Bound = "latest"
    max_bytes: int | None = None                    # per trigger
    max_messages: int | None = None                 # per trigger
    min_messages: int | None = None                 # per trigger, but for max_delay_ns
    max_delay_ns: int = DEFAULT_DELAY_NS
    starting_ns: int | None = None                  # epoch; replaces starting
    ending_ns: int | None = None
    min_partitions: int | None = None
    max_records: int | None = None                  # in a partition
    fail_on_data_loss: bool = True
    daemon_dir: str | None = None
    daemons: tuple[Daemon, ...] = (Daemon(),)
    key_file: str | None = None
    payload: Literal["binary", "arrow"] = "binary"
    arrow_schema: str | None = None                 # DDL
    include_metadata: bool = False
    include_headers: bool = False
    expiry_ns: int = DEFAULT_EXPIRY_NS
    retry_ns: int = DEFAULT_RETRY_NS
    batch_bytes: int = DEFAULT_BATCH_BYTES
    locality: Literal["none", "barrier"] = "none"
    read_committed: bool | None = None              # None: of sessions that have markers
    withhold: bool = False                          # from the plan of a batch to its commit

    @property
    def remote(self) -> bool:
        """Whether the query reaches its daemons over TCP."""
        return any(daemon.address is not None for daemon in self.daemons)


def read_options(options: Mapping[str, str], *, streaming: bool = True) -> SourceOptions:
    """Read and check the options of a Spark reader.

    :raises InvalidArgument: an option is wrong; the text names it, its value and the accepted
        values.
    """
    given = {key.lower(): value for key, value in options.items()}
    if of_table(given) or not set(given) - _SPARKS:
        raise InvalidArgument(
            "the source got no options: give channel, streamId and subscription. Spark does not "
            "pass the options of a table (CREATE TABLE name USING penstock): use CREATE TEMPORARY "
            "VIEW name USING penstock OPTIONS (...)"
        )
    _check_names(given, streaming)
    _check_order(given)
    subscription = given.get("subscription", "")
    if not subscription or len(subscription) > 80:
        raise InvalidArgument(
            f"option subscription={subscription!r}: give the name under which the daemon keeps "
            "this query's progress, 1 to 80 characters, a different name for each query"
        )
    payload = _choice(given, "payload", ("binary", "arrow"))
    streams = _streams(given)
    return SourceOptions(
        streams=streams,
        sessions=_sessions(given),
        subscription=subscription,
        ack_on=_choice(given, "ackOn", ("batch", "commit")),
        starting=_bound(given, "startingOffsets", _first(given, streaming)),
        ending=_ending(given),
        max_bytes=_size(given, "maxBytesPerTrigger"),
        max_messages=_optional_integer(given, "maxOffsetsPerTrigger", 2**62),
        min_messages=_least(given),
        max_delay_ns=_duration(given, "maxTriggerDelay", DEFAULT_DELAY_NS),
        starting_ns=_timestamp(given, "startingTimestamp", "startingOffsets"),
        ending_ns=_timestamp(given, "endingTimestamp", "endingOffsets"),
        min_partitions=_optional_integer(given, "minPartitions", MOST_PARTITIONS),
        max_records=_optional_integer(given, "maxRecordsPerPartition", 2**62),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", True),
        daemon_dir=given.get("daemondir") or None,
        daemons=_daemons(given),
        key_file=given.get("keyfile") or None,
        payload=payload,
        arrow_schema=_arrow_schema(given, payload),
        include_metadata=_metadata(given, payload),
        include_headers=_headers(given, payload),
        expiry_ns=_duration(given, "groupExpiry", DEFAULT_EXPIRY_NS if streaming else 60 * 10**9),
        retry_ns=_duration(given, "retry", DEFAULT_RETRY_NS),
        batch_bytes=_batch_bytes(given),
        locality=_choice(given, "locality", ("none", "barrier")),
        read_committed=_read_committed(given, streams),
        withhold=_withhold(given, streams),
    )


def of_table(given: Mapping[str, str]) -> bool:
    """Return whether Spark passes the properties of a table: a user states none of these."""
    return any(key in _TABLES or key.startswith("option.") for key in given)


def _check_names(given: Mapping[str, str], streaming: bool) -> None:
    ends, triggers = sorted(BATCH_ONLY & set(given)), sorted(_STREAM_ONLY & set(given))
    if ends and triggers:
        raise InvalidArgument(
            f"options {NAMES[ends[0]]} and {NAMES[triggers[0]]} contradict each other: "
            f"{NAMES[ends[0]]} is for spark.read, {NAMES[triggers[0]]} is for spark.readStream: "
            "give one of them"
        )
    for key in given:
        if key in _SINKS or key in _SPARKS:
            if key == "path":
                raise InvalidArgument(
                    f"load({given[key]!r}): the source has no path; give the option channel"
                )
            continue
        if key not in NAMES:
            close = difflib.get_close_matches(key, NAMES, 1)
            hint = f"; did you mean {NAMES[close[0]]}?" if close else "."
            if instead := _kafka.replacement(_kafka.SOURCE, key):
                hint = f". {instead}"
            raise InvalidArgument(
                f"option {key}: the penstock source has no such option{hint} It has: "
                f"{', '.join(sorted(NAMES.values()))}"
            )
        if streaming and key in BATCH_ONLY:
            raise InvalidArgument(
                f"option {NAMES[key]}: is for spark.read; a streaming query has no end: leave it "
                "out"
            )
        if not streaming and key in _STREAM_ONLY:
            raise InvalidArgument(
                f"option {NAMES[key]}: is for spark.readStream; a batch query acknowledges "
                "nothing and reads all retained data: leave it out"
            )


# ---- what to read --------------------------------------------------------------------------------


def _streams(given: Mapping[str, str]) -> tuple[StreamName, ...]:
    if "streams" in given:
        for key in ("channel", "streamid"):
            if key in given:
                raise InvalidArgument(
                    f"options streams and {NAMES[key]} contradict each other: give one of them"
                )
        return _stream_list(given["streams"])
    channels = [c.strip() for c in re.split(r",(?=\s*aeron:)", given.get("channel", "")) if c]
    if not channels or not all(channels):
        raise InvalidArgument(
            "option channel is missing: give an Aeron URI, e.g. aeron:udp?endpoint=10.0.0.2:40456, "
            "or several with commas between them"
        )
    ids = [_stream_id(text, "streamId") for text in given.get("streamid", "").split(",")]
    return _distinct([StreamName(channel=c, stream_id=i) for c in channels for i in ids])


def _stream_list(text: str) -> tuple[StreamName, ...]:
    form = 'a JSON list such as [{"channel": "aeron:ipc", "streamId": 1001}]'
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"option streams={text!r}: {error}; expected {form}") from None
    if not isinstance(entries, list) or not entries:
        raise InvalidArgument(f"option streams={text!r}: expected {form}")
    found = []
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) != {"channel", "streamId"}:
            raise InvalidArgument(f"option streams: {entry!r}: expected {form}")
        found.append(StreamName(
            channel=str(entry["channel"]), stream_id=_stream_id(str(entry["streamId"]), "streams")
        ))
    return _distinct(found)


def _stream_id(text: str, name: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 2**31
    if not -(2**31) <= value < 2**31:
        raise InvalidArgument(
            f"option {name}={text!r}: expected a stream id, -2147483648 to 2147483647"
            + (", or several with commas between them" if name == "streamId" else "")
        )
    return value


def _distinct(names: Sequence[StreamName]) -> tuple[StreamName, ...]:
    for name in names:
        try:
            uri.check_subscription(uri.parse(name.channel))
        except ValueError as error:
            raise InvalidArgument(f"option channel={name.channel}: {error}") from None
    if len(set(names)) < len(names):
        raise InvalidArgument("option channel or streams: a stream is named twice")
    return tuple(names)


def _sessions(given: Mapping[str, str]) -> tuple[int, ...]:
    text = given.get("sessions", "")
    try:
        ids = tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        ids = (2**31,)
    if len(ids) > MOST_SESSIONS or not all(-(2**31) <= i < 2**31 for i in ids):
        raise InvalidArgument(
            f"option sessions={text!r}: expected up to {MOST_SESSIONS} session ids with commas "
            "between them, or none for all"
        )
    return ids


def _bound(given: Mapping[str, str], name: str, default: Literal["latest", "earliest"]) -> Bound:
    text = given.get(name.lower(), default)
    if text in ("latest", "earliest"):
        return text  # type: ignore[return-value]
    form = (
        f'{"" if name.lower() in BATCH_ONLY else "earliest, "}latest or JSON such as '
        '{"aeron:ipc|1001|-17|5": 4096} (channel|stream|session|initial term id: position)'
    )
    try:
        value = json.loads(text)
    except ValueError:
        raise InvalidArgument(f"option {name}={text!r}: expected {form}") from None
    if not isinstance(value, dict) or not value or not all(
        isinstance(position, int) and 0 <= position < 2**63 and position % 32 == 0
        and re.fullmatch(r".+\|-?\d+\|-?\d+\|-?\d+", key) for key, position in value.items()
    ):
        raise InvalidArgument(f"option {name}={text!r}: expected {form}")
    return value


def _first(given: Mapping[str, str], streaming: bool) -> Literal["latest", "earliest"]:
    """Return the default of startingOffsets. A time is looked up in all retained data."""
    return "latest" if streaming and "startingtimestamp" not in given else "earliest"


def _check_order(given: Mapping[str, str]) -> None:
    """Check that the end of a batch read does not lie before its start."""
    start = _timestamp(given, "startingTimestamp", "startingOffsets")
    end = _timestamp(given, "endingTimestamp", "endingOffsets")
    if start is not None and end is not None and end < start:
        raise InvalidArgument(
            f"option endingTimestamp={given['endingtimestamp']}: lies before "
            f"startingTimestamp={given['startingtimestamp']}: exchange them"
        )
    starts, ends = _bound(given, "startingOffsets", "latest"), _ending(given)
    if isinstance(starts, str) or isinstance(ends, str):
        return
    for session, position in sorted(ends.items()):
        if position < starts.get(session, 0):
            raise InvalidArgument(
                f"option endingOffsets: {session}: position {position} lies before position "
                f"{starts[session]} in startingOffsets: exchange the two options"
            )


def _ending(given: Mapping[str, str]) -> Bound:
    ending = _bound(given, "endingOffsets", "latest")
    if ending == "earliest":
        raise InvalidArgument("option endingOffsets=earliest: there is no earlier data: use latest")
    return ending


def _read_committed(given: Mapping[str, str], streams: Sequence[StreamName]) -> bool | None:
    wanted = _boolean(given, "readCommitted", False) if "readcommitted" in given else None
    arrow = _choice(given, "payload", ("binary", "arrow")) == "arrow"
    for stream in streams:
        check_stamps(
            stream.channel, committed="readCommitted=true" if wanted else "", arrow=arrow
        )
    return wanted


# ---- how to decode -------------------------------------------------------------------------------


def _arrow_schema(given: Mapping[str, str], payload: str) -> str | None:
    text = given.get("arrowschema") or None
    if text is not None and payload != "arrow":
        raise InvalidArgument(
            "option arrowSchema: needs payload=arrow: set payload=arrow, or leave arrowSchema out"
        )
    return text


def _metadata(given: Mapping[str, str], payload: str) -> bool:
    if "includemetadata" in given and payload != "arrow":
        raise InvalidArgument(
            "option includeMetadata: needs payload=arrow; with payload=binary, name the wanted "
            "columns in .schema(...)"
        )
    return _boolean(given, "includeMetadata", False)


def _headers(given: Mapping[str, str], payload: str) -> bool:
    wanted = _boolean(given, "includeHeaders", False)
    if wanted and payload == "arrow" and not _boolean(given, "includeMetadata", False):
        raise InvalidArgument(
            "option includeHeaders: with payload=arrow it needs includeMetadata=true: set it"
        )
    return wanted


def _batch_bytes(given: Mapping[str, str]) -> int:
    value = _size(given, "batchBytes")
    if value is None:
        return DEFAULT_BATCH_BYTES
    if not 64 * 1024 <= value <= MOST_BATCH_BYTES:
        raise InvalidArgument(
            f"option batchBytes={given['batchbytes']}: expected 64k to 1g: the number of "
            "payload bytes in one Arrow batch"
        )
    return value


# ---- whom to ask ---------------------------------------------------------------------------------


def _daemons(given: Mapping[str, str]) -> tuple[Daemon, ...]:
    addresses = [a.strip() for a in given.get("control", "").split(",") if a.strip()]
    if not addresses:
        for key in ("keyfile", "serverkey", "serverkeyfile", "serverkeys"):
            if key in given:
                raise InvalidArgument(
                    f"option {NAMES[key]}: needs control=tcp://HOST:PORT: give control, or "
                    f"leave {NAMES[key]} out"
                )
        return (Daemon(directory=given.get("daemondir") or None),)
    if not given.get("keyfile"):
        raise InvalidArgument(
            "option keyFile is missing: control over TCP needs a key pair; make one with 'penstock "
            "keygen' and name the .key_secret file"
        )
    keys = _server_keys(given, addresses)
    for address in addresses:
        if not re.fullmatch(r"tcp://.+:\d{1,5}", address):
            raise InvalidArgument(f"option control={address}: expected tcp://HOST:PORT")
    if len(set(addresses)) < len(addresses):
        raise InvalidArgument(f"option control={given['control']}: an address is named twice")
    return tuple(Daemon(address=a, server_key=keys[a]) for a in addresses)


def _server_keys(given: Mapping[str, str], addresses: Sequence[str]) -> dict[str, str]:
    present = [name for name in ("serverKey", "serverKeyFile", "serverKeys")
               if name.lower() in given]
    if len(present) != 1:
        raise InvalidArgument(
            "control over TCP needs the daemons' public keys: give one of serverKey, "
            f"serverKeyFile and serverKeys (given: {', '.join(present) or 'none'})"
        )
    text = given[present[0].lower()]
    try:
        if present[0] == "serverKeys":
            table = json.loads(text)
            missing = [a for a in addresses if not isinstance(table, dict) or a not in table]
            if missing:
                raise InvalidArgument(
                    f'option serverKeys: no key for {missing[0]}; expected JSON such as '
                    f'{{"{missing[0]}": "<public key>"}}'
                )
            return {a: check_public_key(str(table[a]), f"option serverKeys, {a}")
                    for a in addresses}
        key = load_public_key(text) if present[0] == "serverKeyFile" else text
        return dict.fromkeys(addresses, check_public_key(key, f"option {present[0]}"))
    except InvalidArgument:
        raise
    except (PenstockError, ValueError) as error:
        raise InvalidArgument(f"option {present[0]}: {error}") from None


# ---- plain values --------------------------------------------------------------------------------


def _withhold(given: Mapping[str, str], streams: Sequence[StreamName]) -> bool:
    wanted = _boolean(given, "withholdOnCheckpoint", False)
    if wanted:
        check_withhold(given, streams)
    return wanted


def _choice(given: Mapping[str, str], name: str, accepted: Sequence[str]) -> Any:
    text = given.get(name.lower(), accepted[0])
    if text.lower() not in accepted:
        raise InvalidArgument(f"option {name}={text!r}: expected {' or '.join(accepted)}")
    return text.lower()


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidArgument(f"option {name}={text!r}: expected true or false")
    return text == "true"


def _optional_integer(given: Mapping[str, str], name: str, most: int) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
        raise InvalidArgument(f"option {name}={text!r}: expected a whole number from 1 to {most}")
    return int(text)


def _least(given: Mapping[str, str]) -> int | None:
    least = _optional_integer(given, "minOffsetsPerTrigger", 2**62)
    most = _optional_integer(given, "maxOffsetsPerTrigger", 2**62)
    if "maxtriggerdelay" in given and least is None:
        raise InvalidArgument(
            "option maxTriggerDelay: needs minOffsetsPerTrigger: give both, or neither"
        )
    if least is not None and most is not None and least > most:
        raise InvalidArgument(
            f"option minOffsetsPerTrigger={least}: is more than maxOffsetsPerTrigger={most}: "
            "reduce minOffsetsPerTrigger"
        )
    return least


def _timestamp(given: Mapping[str, str], name: str, other: str) -> int | None:
    """Return nanoseconds from milliseconds since 1970, the unit of Kafka's source."""
    text = given.get(name.lower())
    if text is None:
        return None
    if other.lower() in given:
        raise InvalidArgument(f"options {name} and {other} contradict each other: give one of them")
    if not text.isascii() or not text.isdigit() or int(text) > 2**62 // 10**6:
        raise InvalidArgument(
            f"option {name}={text!r}: expected milliseconds since 1970, such as 1767225600000"
        )
    return int(text) * 10**6


def _size(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    match = _SIZE.fullmatch(text.strip())
    value = int(match[1]) * _SIZES[match[2].lower()] if match else 0
    if not 1 <= value < 2**62:
        raise InvalidArgument(f"option {name}={text!r}: expected bytes, such as 67108864 or 64m")
    return value


def _duration(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    match = _DURATION.fullmatch(text.strip())
    value = int(match[1]) * _UNITS_NS[match[2]] if match else 0
    if not 10**6 <= value < 2**62:
        raise InvalidArgument(f"option {name}={text!r}: expected a time, such as 500ms, 30s or 10m")
    return value
