# SPDX-License-Identifier: Apache-2.0
"""Check which channel parameters can be combined, for a publication, a subscription and a
destination.

This module does not check conditions that depend on the host (interfaces, names, ports in use) or
on the daemon's configuration (strategies, defaults). The daemon checks such conditions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.config.units import write_duration
from penstock.config.uri._credits import check_credits, check_strategy
from penstock.config.uri._values import Address, ChannelError, ControlMode, SessionTag

if TYPE_CHECKING:
    from penstock.config.uri import ChannelUri

#: Shortest time for which a publication can retain data.
LEAST_RETENTION_NS: Final = 10_000_000
_UDP_ONLY: Final = ("endpoint", "interface", "control", "control-mode", "ttl", "fc", "cc")
_NOT_ON_DESTINATIONS: Final = ("mtu", "rcv-wnd", "so-rcvbuf", "so-sndbuf", "control-mode")


def check_publication(uri: ChannelUri) -> None:
    """Raise :class:`ChannelError` if the channel is not valid for a publication."""
    if uri.spy:
        raise ChannelError("aeron-spy", "", "a spy only subscribes", "aeron:udp?..., aeron:ipc")
    _check_media(uri)
    if not uri.is_ipc:
        _check_publication_addresses(uri)
    _check_position(uri)
    _check_sizes(uri)
    if uri.ps_policy == "rate_limit" and uri.ps_rate is None:
        raise _wrong(uri, "ps-policy", "needs ps-rate, which is missing", "ps-rate=10m, 500msg")
    _check_fanout(uri)
    _check_retention(uri)
    if uri.ps_credits is not None:
        check_strategy(uri, f"ps-credits={uri.given()['ps-credits']}")


def check_subscription(uri: ChannelUri) -> None:
    """Raise :class:`ChannelError` if the channel is not valid for a subscription."""
    _check_media(uri)
    check_credits(uri)
    _check_sub_policy(uri)
    if isinstance(uri.session_id, SessionTag):
        raise _wrong(uri, "session-id", "only a publication can state session-id=tag:N")
    if uri.is_ipc:
        return
    _check_addressed(uri)
    if uri.spy:
        return
    if uri.control_mode is ControlMode.MANUAL:
        for key in ("endpoint", "control"):
            if key in uri.given():
                raise _wrong(
                    uri, key, "contradicts control-mode=manual, whose destinations are added later"
                )
        return
    if uri.endpoint is None and uri.tags is None:
        raise ChannelError(
            "endpoint", "", "is missing: a subscription needs an address",
            "host:port; with port 0 the system chooses a port",
        )
    _check_receive_addresses(uri)


def _check_sub_policy(uri: ChannelUri) -> None:
    """Check what a subscription does when it is behind."""
    policy = uri.ps_sub_policy
    if uri.ps_sub_depth is not None and policy == "block":
        raise _wrong(
            uri, "ps-sub-depth",
            "contradicts ps-sub-policy=block, under which the sender waits for the subscription",
            "ps-sub-policy=independent or drop_oldest",
        )
    if policy not in (None, "block") and uri.ps_credits is not None:
        raise _wrong(
            uri, "ps-sub-policy",
            f"contradicts ps-credits={uri.given()['ps-credits']}: the subscription would skip "
            "messages, whose credits would never return", "ps-sub-policy=block with credits",
        )


def _check_retention(uri: ChannelUri) -> None:
    """Check the limits of what a publication retains for its readers."""
    if uri.ps_retention == 0:
        raise _wrong(uri, "ps-retention", "retains no data", "at least two MTUs")
    if uri.ps_retention_time_ns is not None and uri.ps_retention_time_ns < LEAST_RETENTION_NS:
        raise _wrong(
            uri, "ps-retention-time",
            f"is shorter than {write_duration(LEAST_RETENTION_NS)}: the time index of a stream has "
            "an entry for each millisecond", f"{write_duration(LEAST_RETENTION_NS)} or longer",
        )


def _check_fanout(uri: ChannelUri) -> None:
    """Check that flow control and policy wait for the same readers as the fan-out."""
    waits_for_some = ("min", "tagged", "preferred")
    fc = None if uri.fc is None or uri.fc.strategy.startswith("py:") else uri.fc.strategy
    if uri.ps_fanout == "min" and fc not in (None, "min"):
        raise _wrong(uri, "ps-fanout", f"contradicts fc={uri.fc}, under which the sender "
                     "does not wait for each receiver", "fc=min")
    if uri.ps_fanout == "independent" and fc in waits_for_some:
        raise _wrong(uri, "ps-fanout", f"contradicts fc={uri.fc}, under which the sender "
                     "waits for receivers", "fc=max, fc=nak")
    if uri.ps_fanout == "min" and uri.ps_policy == "drop_oldest":
        raise _wrong(uri, "ps-fanout", "contradicts ps-policy=drop_oldest, under which readers "
                     "skip messages", "ps-fanout=independent, or another policy")


def check_destination(uri: ChannelUri, *, subscription: bool) -> None:
    """Check the channel of a destination that is added to a publication or subscription with
    ``control-mode=manual``."""
    given = uri.given()
    for key in _NOT_ON_DESTINATIONS:
        if key in given:
            raise _wrong(uri, key, "must be stated on the channel, not on one of its destinations")
    if subscription:
        check_subscription(uri)
        return
    if uri.spy or uri.is_ipc:
        raise ChannelError("URI", str(uri), "a publication sends to UDP", "aeron:udp?endpoint=...")
    if uri.endpoint is None:
        raise ChannelError("endpoint", "", "is missing", "host:port")
    if uri.control is not None:
        raise _wrong(uri, "control", "has no meaning on a destination of a publication")
    _check_remote_endpoint(uri, uri.endpoint)


def _wrong(uri: ChannelUri, key: str, problem: str, accepted: str = "") -> ChannelError:
    return ChannelError(key, uri.given().get(key, ""), problem, accepted)


def _needs_no_group(uri: ChannelUri) -> bool:
    return uri.fc is not None and (uri.fc.strategy == "nak" or uri.fc.strategy.startswith("py:"))


def _check_media(uri: ChannelUri) -> None:
    if uri.is_ipc:
        given = uri.given()
        for key in _UDP_ONLY:
            if key in given and not (key == "fc" and uri.fc is not None
                                     and uri.fc.strategy == "nak"):
                raise _wrong(uri, key, "has no meaning with aeron:ipc", "aeron:udp?...")


def _check_addressed(uri: ChannelUri) -> None:
    """Check that at least one parameter states an address."""
    if uri.control_mode is ControlMode.DYNAMIC and uri.control is None:
        raise ChannelError(
            "control", "", "is missing: control-mode=dynamic needs control=", "host:port"
        )
    if (
        uri.endpoint is None
        and uri.control is None
        and uri.tags is None
        and uri.control_mode is not ControlMode.MANUAL
    ):
        raise ChannelError(
            "endpoint", "", "is missing",
            "a channel with endpoint=, control=, tags= or control-mode=manual",
        )
    if uri.control is not None and uri.control.is_multicast:
        raise _wrong(uri, "control", "is a multicast address", "a unicast host:port")
    if uri.endpoint is not None and uri.endpoint.is_multicast:
        _check_multicast(uri, uri.endpoint)
    elif uri.endpoint is not None:
        _check_family(uri, "endpoint", uri.endpoint)
    elif uri.control is not None:
        _check_family(uri, "control", uri.control)


def _check_multicast(uri: ChannelUri, endpoint: Address) -> None:
    ip = endpoint.ip
    assert ip is not None
    if ip.packed[-1] % 2 == 0:
        raise _wrong(
            uri, "endpoint", "the last byte of a multicast data address must be odd: the next "
            "even address carries the control traffic", f"{ip + 1}, for example",
        )
    for key in ("control", "control-mode"):
        if key in uri.given():
            raise _wrong(uri, key, "contradicts a multicast endpoint")
    if endpoint.port == 0:
        raise _wrong(uri, "endpoint", "a multicast address must not have port 0", "1..65535")
    _check_family(uri, "endpoint", endpoint)


def _check_family(uri: ChannelUri, key: str, address: Address) -> None:
    """Check that the interface has the address's family."""
    interface = uri.interface
    if interface is not None and not interface.name and interface.ipv6 != address.ipv6:
        raise _wrong(
            uri, "interface", f"is of another address family than {key}={address}",
            "two IPv4 addresses, or two IPv6 addresses in brackets",
        )


def _check_remote_endpoint(uri: ChannelUri, endpoint: Address) -> None:
    if endpoint.is_multicast:
        _check_multicast(uri, endpoint)
    elif endpoint.port == 0:
        raise _wrong(uri, "endpoint", "a sender cannot send to port 0", "1..65535")


def _check_publication_addresses(uri: ChannelUri) -> None:
    _check_addressed(uri)
    if uri.control_mode is not None and uri.endpoint is not None:
        raise _wrong(
            uri, "endpoint", f"contradicts control-mode={uri.control_mode.value}: destinations are "
            + ("learnt from receivers" if uri.control_mode is ControlMode.DYNAMIC
               else "added later"),
        )
    if uri.control is not None and uri.endpoint is None and uri.control_mode is None:
        raise _wrong(
            uri, "control", "alone does not state the destinations of a publication",
            "control= together with endpoint= or control-mode=dynamic|manual",
        )
    if uri.endpoint is not None:
        _check_remote_endpoint(uri, uri.endpoint)
    multicast = uri.is_multicast
    # may resolve to a multicast address
    named = uri.endpoint is not None and uri.endpoint.ip is None
    group = multicast or named or uri.control_mode or uri.tags
    if uri.fc is not None and not _needs_no_group(uri) and not group:
        raise _wrong(
            uri, "fc", "a unicast channel has only one receiver, so its fc must be nak or py:CLASS",
            "other strategies with a multicast endpoint or control-mode=dynamic|manual",
        )


def _check_receive_addresses(uri: ChannelUri) -> None:
    if uri.control is not None and uri.control.port == 0:
        raise _wrong(uri, "control", "a receiver cannot send to port 0", "1..65535")
    if uri.control is not None and uri.endpoint is not None \
            and uri.control.ipv6 != uri.endpoint.ipv6:
        raise _wrong(uri, "control", f"is of another address family than endpoint={uri.endpoint}")


def _check_position(uri: ChannelUri) -> None:
    parts = (uri.init_term_id, uri.term_id, uri.term_offset)
    if all(part is None for part in parts):
        return
    for key, part in zip(("init-term-id", "term-id", "term-offset"), parts, strict=True):
        if part is None:
            raise ChannelError(key, "", "is missing", "all of init-term-id, term-id, term-offset")
    assert uri.init_term_id is not None
    assert uri.term_id is not None
    assert uri.term_offset is not None
    distance = (uri.term_id - uri.init_term_id) & 0xFFFFFFFF
    if distance >= 2**31:
        raise _wrong(uri, "term-id", f"lies before init-term-id={uri.init_term_id}",
                     "0..2147483647 terms after it")
    if uri.term_offset % 32:
        raise _wrong(
            uri, "term-offset", "is not an offset in a term at which a frame can start",
            "multiples of 32",
        )
    if uri.term_length is not None and uri.term_offset > uri.term_length:
        raise _wrong(uri, "term-offset", f"exceeds the term of {uri.term_length} bytes")


def _check_sizes(uri: ChannelUri) -> None:
    if uri.pub_wnd is not None and uri.term_length is not None:
        largest = uri.term_length if uri.is_ipc else uri.term_length // 2
        if uri.pub_wnd > largest:
            part = "" if uri.is_ipc else "half of "
            raise _wrong(uri, "pub-wnd", f"exceeds {part}term-length={uri.term_length}",
                         f"at most {largest}")
    if uri.pub_wnd is not None and uri.mtu is not None and uri.pub_wnd < uri.mtu:
        raise _wrong(uri, "pub-wnd", f"is less than mtu={uri.mtu}", "at least one MTU")
