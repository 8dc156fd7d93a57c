# SPDX-License-Identifier: Apache-2.0
"""Types of the values of channel parameters, with functions that parse and write them.

Each parsing function takes the key and the text of a parameter. The function returns a typed value,
or raises :class:`ChannelError`. Each writing function converts a typed value to its text.
"""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Callable
from typing import Any, Final

import attrs

from penstock.config.units import DURATION_UNITS, SIZE_UNITS, write_duration, write_size
from penstock.core.errors import ConfigurationError

RESERVED_VALUE_OFFSET: Final = -8
"""A timestamp offset that means "into the frame header's reserved value"."""

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def shown(text: str) -> str:
    """Make an untrusted text fit into one line of an error message: replace its unprintable
    characters, and shorten the text."""
    clean = "".join(c if c.isprintable() else "?" for c in text)
    return clean if len(clean) <= 100 else clean[:97] + "..."


class ChannelError(ConfigurationError, ValueError):
    """Raised for an invalid channel URI. The exception's text names the parameter, its value and
    the accepted values."""

    def __init__(self, parameter: str, value: str, problem: str, accepted: str = "") -> None:
        self.parameter = parameter
        self.value = value
        self.accepted = accepted
        where = f"{parameter}={shown(value)}" if value else parameter
        tail = f" (accepted: {accepted})" if accepted else ""
        super().__init__(f"channel: {where}: {problem}{tail}")


# ---- addresses -----------------------------------------------------------------------------------

_HOST_NAME: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.(?!-)[A-Za-z0-9_-]{1,63})*\.?")
_LOOKS_LIKE_IPV4: Final = re.compile(r"[0-9.]+")
_SCOPE: Final = re.compile(r"[A-Za-z0-9_.@-]{1,15}")
_INTERFACE_NAME: Final = re.compile(r"[A-Za-z0-9_.@:-]{1,15}")
_ADDRESS_FORM: Final = "host:port, a.b.c.d:port or [ipv6%scope]:port"
_INTERFACE_FORM: Final = "address[:port][/prefix], [ipv6][:port][/prefix] or {name}[:port]"


@attrs.frozen(kw_only=True)
class Address:
    """An address ``host:port``. If the URI writes the host in brackets, ``ipv6`` is true; a host
    name in brackets is resolved to an IPv6 address."""

    host: str
    port: int
    ipv6: bool = False
    scope: str = ""

    @property
    def ip(self) -> IpAddress | None:
        """The IP address, or None if ``host`` is a name."""
        return literal_ip(self.host)

    @property
    def is_multicast(self) -> bool:
        return self.ip is not None and self.ip.is_multicast

    def __str__(self) -> str:
        return f"{_host_text(self.host, self.scope, self.ipv6)}:{self.port}"


@attrs.frozen(kw_only=True)
class Interface:
    """A local network interface, given by its name or by an address. If ``prefix_length`` is set,
    the value selects every interface whose address has the same first ``prefix_length`` bits as
    ``host``."""

    host: str = ""
    name: str = ""
    port: int = 0
    prefix_length: int | None = None
    ipv6: bool = False
    scope: str = ""

    @property
    def ip(self) -> IpAddress | None:
        return literal_ip(self.host)

    def __str__(self) -> str:
        text = f"{{{self.name}}}" if self.name else _host_text(self.host, self.scope, self.ipv6)
        if self.port:
            text += f":{self.port}"
        return text if self.prefix_length is None else f"{text}/{self.prefix_length}"


def literal_ip(host: str) -> IpAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _host_text(host: str, scope: str, ipv6: bool) -> str:
    inside = f"{host}%{scope}" if scope else host
    return f"[{inside}]" if ipv6 else inside


def _read_host(key: str, text: str, host: str, *, bracketed: bool, form: str) -> tuple[str, str]:
    """(host, scope) of a host text without brackets and port."""
    host, percent, scope = host.partition("%")
    if percent and (not bracketed or not _SCOPE.fullmatch(scope)):
        raise ChannelError(key, text, "has a malformed scope", form)
    ip = literal_ip(host)
    if ip is not None and (ip.version == 6) != bracketed:
        raise ChannelError(
            key, text, "an IPv6 address needs brackets, and an IPv4 address has none", form
        )
    if ip is not None:
        return str(ip), scope
    if scope or len(host) > 253 or not _HOST_NAME.fullmatch(host):
        raise ChannelError(key, text, "is not an address or host name", form)
    if _LOOKS_LIKE_IPV4.fullmatch(host):
        raise ChannelError(key, text, "is not an IPv4 address", form)
    return host, ""


def _split_host(key: str, text: str, form: str) -> tuple[str, str, bool]:
    """(host, rest after it, bracketed)."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise ChannelError(key, text, "has no closing bracket", form)
        return host, rest, True
    host, colon, rest = text.partition(":")
    return host, colon + rest, False


def _read_port(key: str, text: str, port: str, form: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ChannelError(key, text, "has a port that is not in 0..65535", form)
    return int(port)


def read_address(key: str, text: str) -> Address:
    host, rest, bracketed = _split_host(key, text, _ADDRESS_FORM)
    if not rest.startswith(":"):
        raise ChannelError(key, text, "has no port", _ADDRESS_FORM)
    port = _read_port(key, text, rest[1:], _ADDRESS_FORM)
    host, scope = _read_host(key, text, host, bracketed=bracketed, form=_ADDRESS_FORM)
    return Address(host=host, port=port, ipv6=bracketed, scope=scope)


def read_interface(key: str, text: str) -> Interface:
    if text.startswith("{"):
        name, brace, rest = text[1:].partition("}")
        if not brace or not _INTERFACE_NAME.fullmatch(name):
            raise ChannelError(key, text, "is not an interface name", _INTERFACE_FORM)
        if rest and not rest.startswith(":"):
            raise ChannelError(key, text, "has text after the name", _INTERFACE_FORM)
        port = _read_port(key, text, rest[1:], _INTERFACE_FORM) if rest else 0
        return Interface(name=name, port=port)
    address, slash, prefix = text.partition("/")
    host, rest, bracketed = _split_host(key, address, _INTERFACE_FORM)
    if rest and not rest.startswith(":"):
        raise ChannelError(key, text, "has text after the bracket", _INTERFACE_FORM)
    port = _read_port(key, text, rest[1:], _INTERFACE_FORM) if rest else 0
    host, scope = _read_host(key, text, host, bracketed=bracketed, form=_INTERFACE_FORM)
    bits = 128 if bracketed else 32
    if slash and (not re.fullmatch(r"[0-9]{1,3}", prefix) or int(prefix) > bits):
        raise ChannelError(key, text, f"has a prefix that is not in 0..{bits}", _INTERFACE_FORM)
    length = int(prefix) if slash else None
    return Interface(host=host, port=port, prefix_length=length, ipv6=bracketed, scope=scope)


# ---- numbers -------------------------------------------------------------------------------------

_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,19})")
_SIZE: Final = re.compile(r"(0|[1-9][0-9]{0,19})([kmgKMG]?)")
_DURATION: Final = re.compile(r"(0|[1-9][0-9]{0,19})(ns|us|ms|s)?")


def integer(low: int, high: int) -> Callable[[str, str], int]:
    def read(key: str, text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ChannelError(key, text, "is not a number", f"an integer in {low}..{high}")
        if not low <= int(text) <= high:
            raise ChannelError(key, text, "is out of range", f"an integer in {low}..{high}")
        return int(text)

    return read


def size(low: int, high: int) -> Callable[[str, str], int]:
    def read(key: str, text: str) -> int:
        match = _SIZE.fullmatch(text)
        value = int(match[1]) * SIZE_UNITS[match[2].lower()] if match else -1
        if not low <= value <= high:
            raise ChannelError(
                key, text, "is not a size in the accepted range",
                f"{low}..{high} bytes, or a number with k, m or g",
            )
        return value

    return read


def read_duration(key: str, text: str) -> int:
    """Nanoseconds."""
    match = _DURATION.fullmatch(text)
    value = int(match[1]) * DURATION_UNITS[match[2] or "ns"] if match else -1
    if not 0 <= value < 2**63:
        raise ChannelError(key, text, "is not a duration", "an integer followed by ns, us, ms or s")
    return value


def read_boolean(key: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise ChannelError(key, text, "is not a boolean", "true, false")
    return text == "true"


def write_boolean(value: bool) -> str:
    return "true" if value else "false"


def read_term_length(key: str, text: str) -> int:
    value = size(64 * 1024, 1 << 30)(key, text)
    if value & (value - 1):
        raise ChannelError(key, text, "is not a power of two", "64k, 128k, ... 1g")
    return value


def read_mtu(key: str, text: str) -> int:
    value = size(64, 65504)(key, text)
    if value % 32:
        raise ChannelError(key, text, "is not a multiple of 32", "64..65504 in steps of 32")
    return value


def read_timestamp_offset(key: str, text: str) -> int:
    if text == "reserved":
        return RESERVED_VALUE_OFFSET
    if not _INTEGER.fullmatch(text) or not 0 <= int(text) <= 65504:
        raise ChannelError(key, text, "is not an offset",
                           "an offset in the payload, 0..65504, or the word reserved")
    return int(text)


def write_timestamp_offset(value: int) -> str:
    return "reserved" if value == RESERVED_VALUE_OFFSET else str(value)


# ---- words and compounds -------------------------------------------------------------------------


class Media(enum.Enum):
    UDP = "udp"
    IPC = "ipc"


class ControlMode(enum.Enum):
    DYNAMIC = "dynamic"
    MANUAL = "manual"


class Group(enum.Enum):
    TRUE = "true"
    FALSE = "false"
    INFER = "infer"


@attrs.frozen(kw_only=True)
class Tags:
    channel: int
    entity: int | None = None

    def __str__(self) -> str:
        return str(self.channel) if self.entity is None else f"{self.channel},{self.entity}"


@attrs.frozen(kw_only=True)
class SessionTag:
    """The parameter ``session-id=tag:N``: the channel uses the session id, MTU and term length of
    the publication that has the tag N."""

    tag: int

    def __str__(self) -> str:
        return f"tag:{self.tag}"


@attrs.frozen(kw_only=True)
class FlowControl:
    """Flow control of a publication, written as ``fc=name,t:5s,g:tag/min,rrwm:4``. If the text does
    not state an option, the option's field is None."""

    strategy: str
    receiver_timeout_ns: int | None = None
    group_tag: int | None = None
    group_min_size: int | None = None
    retransmit_window_multiple: int | None = None
    by_rule: bool = attrs.field(default=False, eq=False)   # not from the channel itself

    def __str__(self) -> str:
        parts = [self.strategy]
        if self.receiver_timeout_ns is not None:
            parts.append(f"t:{write_duration(self.receiver_timeout_ns)}")
        if self.group_tag is not None or self.group_min_size is not None:
            tag = "" if self.group_tag is None else str(self.group_tag)
            least = "" if self.group_min_size is None else f"/{self.group_min_size}"
            parts.append(f"g:{tag}{least}")
        if self.retransmit_window_multiple is not None:
            parts.append(f"rrwm:{self.retransmit_window_multiple}")
        return ",".join(parts)


_I64: Final = integer(-(2**63), 2**63 - 1)
_STRATEGY: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_PYTHON_STRATEGY: Final = re.compile(r"py:[A-Za-z_][\w.-]{0,200}(:[A-Za-z_]\w{0,100})?", re.ASCII)
_FC_FORM: Final = "name[,t:duration][,g:tag|g:/min|g:tag/min][,rrwm:n]"


def _read_group_option(key: str, text: str, value: str) -> dict[str, int]:
    tag, slash, least = value.partition("/")
    found: dict[str, int] = {}
    if tag:
        found["group_tag"] = _I64(key, tag)
    if slash:
        found["group_min_size"] = integer(0, 2**31 - 1)(key, least)
    if not found:
        raise ChannelError(
            key, text, "the option g: states neither a group tag nor a minimum group size", _FC_FORM
        )
    return found


def read_flow_control(key: str, text: str) -> FlowControl:
    strategy, *options = text.split(",")
    if not _STRATEGY.fullmatch(strategy) and not _PYTHON_STRATEGY.fullmatch(strategy):
        raise ChannelError(key, text, "is not the name of a flow control", _FC_FORM)
    found: dict[str, Any] = {}
    seen: set[str] = set()
    for option in options:
        name, colon, value = option.partition(":")
        if name in seen:
            raise ChannelError(key, text, f"has {name}: twice", _FC_FORM)
        seen.add(name)
        if name == "t" and colon:
            found["receiver_timeout_ns"] = read_duration(key, value)
        elif name == "g" and colon:
            found |= _read_group_option(key, text, value)
        elif name == "rrwm" and colon:
            found["retransmit_window_multiple"] = integer(1, 2**31 - 1)(key, value)
        else:
            raise ChannelError(key, text, f"has the unknown option {shown(option)!r}", _FC_FORM)
    if strategy == "max" and seen - {"rrwm"}:
        raise ChannelError(
            key, text, "the flow control max has no option except rrwm", "max[,rrwm:n]"
        )
    if strategy == "nak" and "g" in seen:
        raise ChannelError(key, text, "nak follows no group", "nak[,t:duration][,rrwm:n]")
    return FlowControl(strategy=strategy, **found)


@attrs.frozen(kw_only=True)
class Rate:
    """Rate limit of a publication, written as ``ps-rate=10m`` (bytes a second), ``ps-rate=500msg``
    (messages a second), or both."""

    bytes_per_s: int = 0
    messages_per_s: int = 0

    def __str__(self) -> str:
        parts = [write_size(self.bytes_per_s)] if self.bytes_per_s else []
        if self.messages_per_s:
            parts.append(f"{self.messages_per_s}msg")
        return ",".join(parts)


_RATE_FORM: Final = "bytes a second (10m), messages a second (500msg), or both (10m,500msg)"
_RATE_MAX: Final = 1 << 40


def read_rate(key: str, text: str) -> Rate:
    found: dict[str, int] = {}
    for part in text.split(","):
        if part.endswith("msg"):
            name, value = "messages_per_s", integer(1, _RATE_MAX)(key, part.removesuffix("msg"))
        else:
            name, value = "bytes_per_s", size(1, _RATE_MAX)(key, part)
        if name in found:
            raise ChannelError(key, text, "states one rate twice", _RATE_FORM)
        found[name] = value
    return Rate(**found)


POLICIES: Final = ("block", "drop_newest", "drop_oldest", "error", "rate_limit")
"""Policies of a publication whose log is full."""


def read_policy(key: str, text: str) -> str:
    """Parse a publication's policy, such as ``ps-policy=drop_newest``; hyphens are accepted in
    place of underscores."""
    policy = text.replace("-", "_")
    if policy not in POLICIES:
        raise ChannelError(
            key, text, "is not a back-pressure policy of a publication", ", ".join(POLICIES)
        )
    return policy


FANOUTS: Final = ("min", "independent")
"""The readers that a publication waits for: the slowest, or none that is behind."""


def read_fanout(key: str, text: str) -> str:
    if text not in FANOUTS:
        raise ChannelError(key, text, "is no fan-out", ", ".join(FANOUTS))
    return text


FANINS: Final = ("equal", "priority")
"""How a subscription divides its receiver window and its polls among its publishers."""


def read_fanin(key: str, text: str) -> str:
    if text not in FANINS:
        raise ChannelError(key, text, "is no fan-in", ", ".join(FANINS))
    return text


SUB_POLICIES: Final = ("block", "independent", "drop_oldest")
"""Policies of a subscription that is behind."""


def read_sub_policy(key: str, text: str) -> str:
    """Parse a subscription's policy, such as ``ps-sub-policy=drop_oldest``; hyphens are accepted in
    place of underscores."""
    policy = text.replace("-", "_")
    if policy not in SUB_POLICIES:
        raise ChannelError(
            key, text, "is not a back-pressure policy of a subscription", ", ".join(SUB_POLICIES)
        )
    return policy


_RATIO: Final = re.compile(r"0|1(\.0{1,6})?|0?\.\d{1,6}")


def read_ratio(key: str, text: str) -> float:
    """Parse a ratio, which is above 0 and at most 1."""
    if not _RATIO.fullmatch(text) or not float(text):
        raise ChannelError(
            key, text, "is not a ratio in the accepted range",
            "a number above 0, up to 1, such as 0.5",
        )
    return float(text)


def write_ratio(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


_CC_FORM: Final = "static, cubic[,reno:true|false], py:NAME, py:MODULE:CLASS"


@attrs.frozen(kw_only=True)
class CongestionControl:
    """``cc=cubic,reno:false``.  None: not given."""

    control: str
    reno: bool | None = None            # of cubic: at least what Reno would reach

    @property
    def is_custom(self) -> bool:
        """A class in Python."""
        return self.control.startswith("py:")

    def __str__(self) -> str:
        option = "" if self.reno is None else f",reno:{write_boolean(self.reno)}"
        return self.control + option


def read_congestion_control(key: str, text: str) -> CongestionControl:
    control, *options = text.split(",")
    if not _STRATEGY.fullmatch(control) and not _PYTHON_STRATEGY.fullmatch(control):
        raise ChannelError(key, text, "is not the name of a congestion control", _CC_FORM)
    reno: bool | None = None
    for option in options:
        name, colon, value = option.partition(":")
        if name != "reno" or not colon:
            raise ChannelError(key, text, f"has the unknown option {shown(option)!r}", _CC_FORM)
        if control != "cubic":
            raise ChannelError(
                key, text, f"{control} has no options; only cubic has reno:", _CC_FORM
            )
        if reno is not None:
            raise ChannelError(key, text, "has reno: twice", _CC_FORM)
        if value not in ("true", "false"):
            raise ChannelError(
                key, text, f"reno:{shown(value)} is neither true nor false", _CC_FORM
            )
        reno = value == "true"
    return CongestionControl(control=control, reno=reno)


def read_control_mode(key: str, text: str) -> ControlMode:
    if text == "response":
        raise ChannelError(
            key, text, "response channels are not supported; use a second stream for replies"
        )
    try:
        return ControlMode(text)
    except ValueError:
        raise ChannelError(key, text, "is not a control mode", "dynamic, manual") from None


def read_group(key: str, text: str) -> Group:
    try:
        return Group(text)
    except ValueError:
        raise ChannelError(key, text, "is not known", "true, false, infer") from None


def read_tags(key: str, text: str) -> Tags:
    channel, comma, entity = text.partition(",")
    return Tags(
        channel=_I64(key, channel), entity=_I64(key, entity) if comma else None
    )


def read_session_id(key: str, text: str) -> int | SessionTag:
    if text.startswith("tag:"):
        return SessionTag(tag=_I64(key, text[4:]))
    return integer(-(2**31), 2**31 - 1)(key, text)


def read_alias(key: str, text: str) -> str:
    return text
