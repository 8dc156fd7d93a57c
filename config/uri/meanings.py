# SPDX-License-Identifier: Apache-2.0
"""Meaning of each channel parameter, for the reference page and tools.

:data:`MEANINGS` has the keys of :data:`penstock.config.uri.PARAMETERS` and no others.
"""

from __future__ import annotations

from typing import Final

import attrs


@attrs.frozen
class Meaning:
    """Explain one channel parameter.

    :param on: ``P`` publication, ``S`` subscription, or both.
    :param text: effect, in Markdown, with links relative to ``docs/``.
    :param accepted: accepted values, if the error of the reader names only a part of them.
    :param setting: the configuration key that applies if the channel does not state the parameter,
        as ``table.key``; empty if there is none.
    """

    on: str
    text: str
    setting: str = ""
    accepted: str = ""


_UNTETHERED: Final = "time-out of an untethered subscriber: "

MEANINGS: Final[dict[str, Meaning]] = {
    "endpoint": Meaning(
        "P S", "the address that a publication sends to and a subscription listens on"),
    "interface": Meaning("P S", "local interface"),
    "control": Meaning(
        "P S", "control address of dynamic multi-destination-cast; on a publication with "
        "`endpoint`, the local address"),
    "control-mode": Meaning("P S", "destinations register themselves, or the application adds "
                            "them"),
    "ttl": Meaning("P S", "multicast TTL or hop limit", "sockets.multicast_ttl"),
    "tags": Meaning(
        "P S", "a later URI `aeron:udp?tags=N` uses the same socket; `session-id=tag:N` refers to "
        "the entity tag", accepted="channel[,entity], two integers of 64 bits"),
    "alias": Meaning("P S", "a name that tools show"),
    "session-id": Meaning(
        "P S", "publication: this session, or with `tag:N` session, MTU and term length of the "
        "publication with that entity tag; subscription: receive this session only",
        accepted="an integer of 32 bits; on a publication tag:N too"),
    "stream-id": Meaning("P S", "accepted for Aeron's tools; no effect"),
    "term-length": Meaning("P", "length of a term; a log holds three",
                           "publications.term_length_bytes"),
    "mtu": Meaning(
        "P", "largest datagram without IP and UDP headers; a receiver refuses a stream whose `mtu` "
        "is above its `rcv-wnd` or its receive buffer", "publications.mtu_bytes"),
    "init-term-id": Meaning("P", "start position, together with `term-id` and `term-offset`"),
    "term-id": Meaning("P", "start position, together with `init-term-id` and `term-offset`"),
    "term-offset": Meaning("P", "start position, together with `init-term-id` and `term-id`"),
    "linger": Meaning("P", "time for which a closed publication still retransmits",
                      "publications.linger_ns"),
    "pub-wnd": Meaning(
        "P", "publication window, from one MTU to half a term, on IPC to a term",
        "publications.window_bytes"),
    "max-resend": Meaning("P", "retransmits in flight at once in a group",
                          "publications.max_resend"),
    "eos": Meaning("P", "notify receivers of the end of the stream"),
    "ssc": Meaning("P", "the publication counts as connected while a spy reads it",
                   "publications.spies_simulate_connection"),
    "sparse": Meaning("P S", "sparse log file", "publications.sparse"),
    "fc": Meaning(
        "P", "[flow control](flow-control.md): `max`, `min`, `tagged`, `preferred`, `nak`, "
        "`py:module:Class`", "publications.multicast_flow_control"),
    "ps-rate": Meaning(
        "P", "the stream's rate: bytes a second (`10m`), messages a second (`500msg`), or both",
        accepted="10m, 500msg or 10m,500msg"),
    "ps-policy": Meaning("P", "action when the log is full ([policies](back-pressure.md))",
                         "backpressure.default_policy"),
    "ps-depth": Meaning("P", "bytes that publishers may be ahead; at most the publication window",
                        "backpressure.default_queue_depth"),
    "ps-low-watermark": Meaning(
        "P", "part of the depth to which a full log must drain first",
        "backpressure.low_watermark_ratio"),
    "ps-fanout": Meaning(
        "P", "readers that the stream waits for: the slowest, or none that is behind "
        "([policies](back-pressure.md#fan-out))", accepted="min, independent"),
    "ps-priority": Meaning(
        "P", "[priority](scheduling.md) among the streams of this sender; not stated: by recency"),
    "ps-auto-priority": Meaning(
        "P", "`false`: a stream without a stated priority has 0 instead of its recency",
        "scheduler.auto_priority"),
    "ps-never-throttle": Meaning(
        "P", "`true`: the [governor](scheduling.md#pressure) never withholds or throttles it"),
    "ps-credit-weight": Meaning(
        "P", "weight in the [division](credits.md#several-publishers) of a local reader's "
        "credits, 1 to 1000"),
    "cc": Meaning(
        "S", "[congestion control](congestion-control.md): `static`, `cubic`, `py:module:Class`",
        "subscriptions.congestion_control"),
    "gtag": Meaning("S", "group tag stated in status messages", "subscriptions.group_tag"),
    "reliable": Meaning(
        "S", "`false`: the receiver does not request missing data; it skips and "
        "[reports](loss-recovery.md) gaps", "subscriptions.reliable"),
    "rcv-wnd": Meaning("S", "receiver window", "subscriptions.receiver_window_bytes"),
    "nak-delay": Meaning("S", "time from a gap to its NAK, on unicast",
                         "timeouts.nak_unicast_delay_ns"),
    "group": Meaning("S", "send NAKs with the back-off of a group"),
    "tether": Meaning("S", "`false`: a slow subscriber does not slow the stream",
                      "subscriptions.tether"),
    "rejoin": Meaning(
        "S", "`false`: the subscription does not join again after its image became unavailable",
        "subscriptions.rejoin"),
    "ps-credits": Meaning(
        "S", "messages that may be accepted and not released, 1 to 16 777 216, or `auto`: "
        "publishers without credit are refused"),
    "ps-credit-burst": Meaning(
        "S", "messages that the subscription grants while nothing is outstanding; at least "
        "`ps-credits`"),
    "ps-max-message": Meaning(
        "S", "length of a message that a credit has room for; one frame by default"),
    "ps-credits-required": Meaning("S", "`true`: refuse publishers that know no credits"),
    "ps-sub-policy": Meaning(
        "S", "`block`, or `independent` or `drop_oldest`: the stream does not wait for the "
        "subscription when it is behind ([policies](back-pressure.md#subscriptions))",
        "backpressure.default_policy"),
    "ps-sub-depth": Meaning(
        "S", "bytes that such a subscription may be behind before the stream stops waiting for it; "
        "at most half of its window", "backpressure.default_queue_depth"),
    "ps-credit-policy": Meaning(
        "S", "[division](credits.md#several-publishers) of the credits among publishers: "
        "`round_robin`, `fifo`, `weighted`, `deficit`; not stated: each gets all",
        "credits.policy"),
    "untethered-window-limit-timeout": Meaning(
        "P S", _UNTETHERED + "time at the edge of the window before it is dropped",
        "timeouts.untethered_window_limit_timeout_ns"),
    "untethered-linger-timeout": Meaning(
        "P S", _UNTETHERED + "time in which it may finish reading",
        "timeouts.untethered_linger_timeout_ns"),
    "untethered-resting-timeout": Meaning(
        "P S", _UNTETHERED + "time that it rests before it joins again",
        "timeouts.untethered_resting_timeout_ns"),
    "so-sndbuf": Meaning("P S", "send buffer of the socket", "sockets.sndbuf_bytes"),
    "so-rcvbuf": Meaning(
        "P S", "receive buffer of the socket; without it the buffer follows the receiver window",
        "sockets.rcvbuf_bytes"),
    "media-rcv-ts-offset": Meaning(
        "S", "write the time of reception by the socket at this offset of the payload"),
    "channel-rcv-ts-offset": Meaning(
        "S", "write the time of reception at this offset of the payload"),
    "channel-snd-ts-offset": Meaning(
        "P", "write the time of sending. A spy may see the message before its timestamp is "
        "written, or with the timestamp of a failed attempt"),
}
