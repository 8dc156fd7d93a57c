# SPDX-License-Identifier: Apache-2.0
"""Channel URIs: Aeron's, read strictly.

The grammar is ``[aeron-spy:]aeron:udp|ipc[?key=value{|key=value}]``. Aeron ignores an unknown
parameter. penstock refuses an unknown parameter and names it. If unknown parameters were ignored, a
mistyped ``term-lenght`` would be noticed only under load. As in Aeron, publications and
subscriptions can use the same URI. A publication accepts parameters that affect only subscriptions,
and a subscription accepts parameters that affect only publications (``term-length``, for example).

The function :func:`parse` checks each parameter separately. The
functions :func:`check_publication`, :func:`check_subscription` and :func:`check_destination` check
whether the parameters can be combined.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, Final

import attrs

from penstock.config.units import write_duration, write_size
from penstock.config.uri import _credits as c
from penstock.config.uri import _values as v
from penstock.config.uri._depth import Depth, read_depth
from penstock.config.uri._values import (
    Address,
    ChannelError,
    CongestionControl,
    ControlMode,
    FlowControl,
    Group,
    Interface,
    Media,
    Rate,
    SessionTag,
    Tags,
)

__all__ = ["MAX_URI_CHARS", "PARAMETERS", "REFUSED", "ChannelUri", "parse"]

MAX_URI_CHARS: Final = 4095
SPY_PREFIX: Final = "aeron-spy:"


@attrs.frozen(kw_only=True)
class Parameter:
    """Describes one URI parameter: its key, the field that has its value, and the functions that
    parse and write the value."""

    key: str
    field: str
    read: Callable[[str, str], Any]
    write: Callable[[Any], str]


@attrs.frozen(kw_only=True)
class ChannelUri:
    """A channel.  If the URI does not state a parameter, its field is None, and the daemon's
    default applies.

    Lengths are in bytes, and fields that end in ``_ns`` are in nanoseconds. A timestamp offset is
    the byte offset in the payload at which the timestamp is stored. With ``RESERVED_VALUE_OFFSET``,
    the timestamp is stored in the frame header's reserved value instead. ``str(uri)`` returns the
    URI in its canonical form.
    """

    media: Media
    spy: bool = False

    endpoint: Address | None = None
    interface: Interface | None = None
    control: Address | None = None
    control_mode: ControlMode | None = None
    ttl: int | None = None
    tags: Tags | None = None
    alias: str | None = None
    session_id: int | SessionTag | None = None
    stream_id: int | None = None          # for tools; the daemon ignores it

    term_length: int | None = None
    mtu: int | None = None
    init_term_id: int | None = None
    term_id: int | None = None
    term_offset: int | None = None
    linger_ns: int | None = None
    pub_wnd: int | None = None
    max_resend: int | None = None
    eos: bool | None = None
    ssc: bool | None = None
    sparse: bool | None = None
    fc: FlowControl | None = None
    ps_rate: Rate | None = None
    ps_policy: str | None = None
    ps_depth: Depth | None = None
    ps_low_watermark: float | None = None
    ps_fanout: str | None = None
    ps_fanin: str | None = None
    ps_retention: int | None = None
    ps_retention_time_ns: int | None = None
    ps_priority: int | None = None
    ps_auto_priority: bool | None = None
    ps_never_throttle: bool | None = None
    ps_credit_weight: int | None = None

    cc: CongestionControl | None = None
    gtag: int | None = None
    reliable: bool | None = None
    rcv_wnd: int | None = None
    nak_delay_ns: int | None = None
    group: Group | None = None
    tether: bool | None = None
    rejoin: bool | None = None
    ps_credits: int | None = None         # 0: auto
    ps_credit_burst: int | None = None
    ps_max_message: int | None = None
    ps_credits_required: bool | None = None
    ps_credit_policy: str | None = None
    ps_credit_pool: str | None = None
    ps_sub_policy: str | None = None
    ps_sub_depth: Depth | None = None
    untethered_window_limit_timeout_ns: int | None = None
    untethered_linger_timeout_ns: int | None = None
    untethered_resting_timeout_ns: int | None = None

    so_sndbuf: int | None = None
    so_rcvbuf: int | None = None
    media_rcv_ts_offset: int | None = None
    channel_rcv_ts_offset: int | None = None
    channel_snd_ts_offset: int | None = None

    @property
    def is_ipc(self) -> bool:
        return self.media is Media.IPC

    @property
    def is_multicast(self) -> bool:
        """Whether the endpoint is a multicast IP address. The result is False for a host name,
        because the host name is not resolved yet."""
        return self.endpoint is not None and self.endpoint.is_multicast

    @property
    def is_multi_destination(self) -> bool:
        return self.control_mode is not None

    def given(self) -> dict[str, str]:
        """The parameters that the URI states, in canonical order: a mapping from each key to its
        canonical text."""
        values = ((p, getattr(self, p.field)) for p in PARAMETERS.values())
        return {p.key: p.write(value) for p, value in values if value is not None}

    def __str__(self) -> str:
        head = f"{SPY_PREFIX if self.spy else ''}aeron:{self.media.value}"
        given = self.given()
        return head + ("?" + "|".join(f"{k}={text}" for k, text in given.items()) if given else "")


def _enum_value(value: Any) -> str:
    return str(value.value)


def _rows() -> tuple[tuple[str, Callable[[str, str], Any], Callable[[Any], str]], ...]:
    i32 = v.integer(-(2**31), 2**31 - 1)
    i64 = v.integer(-(2**63), 2**63 - 1)
    socket_buffer = v.size(0, 2**31 - 1)
    window = v.size(1, 1 << 29)
    boolean = (v.read_boolean, v.write_boolean)
    duration = (v.read_duration, write_duration)
    timestamp = (v.read_timestamp_offset, v.write_timestamp_offset)
    return (
        ("endpoint", v.read_address, str),
        ("interface", v.read_interface, str),
        ("control", v.read_address, str),
        ("control-mode", v.read_control_mode, _enum_value),
        ("ttl", v.integer(0, 255), str),
        ("tags", v.read_tags, str),
        ("alias", v.read_alias, str),
        ("session-id", v.read_session_id, str),
        ("stream-id", i32, str),
        ("term-length", v.read_term_length, write_size),
        ("mtu", v.read_mtu, write_size),
        ("init-term-id", i32, str),
        ("term-id", i32, str),
        ("term-offset", v.integer(0, 1 << 30), str),
        ("linger", *duration),
        ("pub-wnd", window, write_size),
        ("max-resend", v.integer(1, 256), str),
        ("eos", *boolean),
        ("ssc", *boolean),
        ("sparse", *boolean),
        ("fc", v.read_flow_control, str),
        ("ps-rate", v.read_rate, str),
        ("ps-policy", v.read_policy, str),
        ("ps-depth", read_depth, str),
        ("ps-low-watermark", v.read_ratio, v.write_ratio),
        ("ps-fanout", v.read_fanout, str),
        ("ps-fanin", v.read_fanin, str),
        ("ps-retention", v.size(0, 3 << 30), write_size),
        ("ps-retention-time", *duration),
        ("ps-priority", v.integer(-1000, 1000), str),
        ("ps-auto-priority", *boolean),
        ("ps-never-throttle", *boolean),
        ("ps-credit-weight", v.integer(1, c.MAX_WEIGHT), str),
        ("cc", v.read_congestion_control, str),
        ("gtag", i64, str),
        ("reliable", *boolean),
        ("rcv-wnd", window, write_size),
        ("nak-delay", *duration),
        ("group", v.read_group, _enum_value),
        ("tether", *boolean),
        ("rejoin", *boolean),
        ("ps-credits", c.read_credits, c.write_credits),
        ("ps-credit-burst", v.integer(1, c.MAX_CREDITS), str),
        ("ps-max-message", v.size(1, 1 << 24), write_size),
        ("ps-credits-required", *boolean),
        ("ps-credit-policy", c.read_credit_policy, str),
        ("ps-credit-pool", c.read_credit_pool, str),
        ("ps-sub-policy", v.read_sub_policy, str),
        ("ps-sub-depth", read_depth, str),
        ("untethered-window-limit-timeout", *duration),
        ("untethered-linger-timeout", *duration),
        ("untethered-resting-timeout", *duration),
        ("so-sndbuf", socket_buffer, write_size),
        ("so-rcvbuf", socket_buffer, write_size),
        ("media-rcv-ts-offset", *timestamp),
        ("channel-rcv-ts-offset", *timestamp),
        ("channel-snd-ts-offset", *timestamp),
    )


def _table() -> dict[str, Parameter]:
    table = {}
    for key, read, write in _rows():
        field = key.replace("-", "_")
        if read is v.read_duration:
            field += "_ns"
        table[key] = Parameter(key=key, field=field, read=read, write=write)
    return table


PARAMETERS: Final = _table()

_RESPONSE: Final = "response channels are not supported; use a second stream for replies"
REFUSED: Final[dict[str, str]] = {
    "response-correlation-id": _RESPONSE,
    "response-endpoint": _RESPONSE,
    "ats": "transport security is a feature of Aeron Premium and not supported",
}


def _refuse(key: str, value: str) -> ChannelError:
    if key in REFUSED:
        return ChannelError(key, value, REFUSED[key])
    near = difflib.get_close_matches(key, [*PARAMETERS, *REFUSED], n=1, cutoff=0.7)
    hint = f", did you mean {near[0]}?" if near else ""
    return ChannelError(key, value, f"is an unknown parameter{hint}", ", ".join(PARAMETERS))


def parse(text: str) -> ChannelUri:
    """Return the channel of ``text``. Raises only :class:`ChannelError`."""
    if len(text) > MAX_URI_CHARS:
        raise ChannelError(
            "URI", "", f"has {len(text)} characters", f"at most {MAX_URI_CHARS}"
        )
    if not text.isprintable():
        raise ChannelError("URI", text, "contains characters that cannot be printed")
    spy = text.startswith(SPY_PREFIX)
    head, question, query = text.removeprefix(SPY_PREFIX).partition("?")
    scheme, _, media = head.partition(":")
    if scheme != "aeron" or media not in ("udp", "ipc"):
        raise ChannelError(
            "URI", text, "does not begin as a channel URI does",
            "aeron:udp?..., aeron:ipc, aeron-spy:aeron:udp?...",
        )
    if question and not query:
        raise ChannelError("URI", text, "has no parameter after the question mark", "key=value")
    values: dict[str, Any] = {}
    for item in query.split("|") if query else ():
        key, equals, value = item.partition("=")
        if not key:
            raise ChannelError("URI", text, "has a parameter without a name", "key=value")
        if key not in PARAMETERS:
            raise _refuse(v.shown(key), value)
        if not equals or not value:
            raise ChannelError(key, "", "has no value", "key=value")
        parameter = PARAMETERS[key]
        if parameter.field in values:
            raise ChannelError(key, value, "is given twice", "each parameter once")
        values[parameter.field] = parameter.read(key, value)
    return ChannelUri(media=Media(media), spy=spy, **values)
