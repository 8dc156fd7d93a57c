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

    :param on: ``P`` for a parameter of publications, ``S`` for a parameter of subscriptions, or
        both letters.
    :param text: effect of the parameter, in Markdown; links are relative to ``docs/``.
    :param accepted: accepted values; stated only if the error text of the parser names only some of
        them.
    :param setting: the configuration key that applies if the channel does not state the parameter,
        as ``table.key``; empty if there is none.
    """

    on: str
    text: str
    setting: str = ""
    accepted: str = ""


_UNTETHERED: Final = "for a subscriber with `tether=false`: "

MEANINGS: Final[dict[str, Meaning]] = {
    "endpoint": Meaning(
        "P S", "the address to which a publication sends and on which a subscription listens"),
    "interface": Meaning("P S", "local interface"),
    "control": Meaning(
        "P S", "control address of dynamic multi-destination-cast; on a publication with "
        "`endpoint`, the local address from which the publication sends"),
    "control-mode": Meaning(
        "P S", "`dynamic`: receivers register as destinations; `manual`: the application adds "
               "destinations"),
    "ttl": Meaning("P S", "multicast TTL or hop limit", "sockets.multicast_ttl"),
    "tags": Meaning(
        "P S", "one or two numbers, for example `tags=5,6`. A later URI `aeron:udp?tags=5` uses "
               "the socket of this channel. A later publication with `session-id=tag:6` gets the "
               "session id of the publication with this channel",
        accepted="two integers of 64 bits, channel[,entity]"),
    "alias": Meaning("P S", "a name that tools show"),
    "session-id": Meaning(
        "P S", "for a publication: the id of its session. With `tag:N`, the publication gets "
               "session id, MTU and term length of the publication whose second number of `tags` "
               "is N. For a subscription: receive only this session",
        accepted="an integer of 32 bits; on a publication also tag:N"),
    "stream-id": Meaning("P S", "accepted because Aeron's tools use it; no effect"),
    "term-length": Meaning(
        "P", "length of a term; a log consists of three terms", "publications.term_length_bytes"),
    "mtu": Meaning(
        "P", "largest datagram without IP and UDP headers; a receiver refuses a stream whose "
        "`mtu` is above the receiver's `rcv-wnd` or receive buffer", "publications.mtu_bytes"),
    "init-term-id": Meaning(
        "P", "initial term id of the session; with `term-id` and `term-offset`, it sets the "
             "position at which the publication starts"),
    "term-id": Meaning(
        "P", "first term id of the publication; with `init-term-id` and `term-offset`, it sets "
             "the position at which the publication starts"),
    "term-offset": Meaning(
        "P", "offset in the first term; with `init-term-id` and `term-id`, it sets the "
             "position at which the publication starts"),
    "linger": Meaning(
        "P", "time for which the sender still retransmits data of a closed publication",
        "publications.linger_ns"),
    "pub-wnd": Meaning(
        "P", "publication window: from one MTU up to half a term (on IPC up to a whole term). "
        "The default is the largest allowed value; under `ps-policy=drop_oldest` the default is "
        "7/8 of a term",
        "publications.window_bytes"),
    "max-resend": Meaning(
        "P", "largest number of retransmits in flight at once on a channel with several "
             "receivers",
        "publications.max_resend"),
    "eos": Meaning("P", "`true`: notify receivers when the stream ends"),
    "ssc": Meaning(
        "P", "with `true`, a spy counts as a receiver, so the publication is connected even if "
        "only spies read it",
        "publications.spies_simulate_connection"),
    "sparse": Meaning("P S", "sparse log file", "publications.sparse"),
    "fc": Meaning(
        "P", "[flow control](flow-control.md): `max`, `min`, `tagged`, `preferred`, `nak`, "
        "`py:module:Class`", "publications.multicast_flow_control"),
    "ps-rate": Meaning(
        "P", "the stream's rate: bytes a second (`10m`), messages a second (`500msg`), or both",
        accepted="10m, 500msg or 10m,500msg"),
    "ps-policy": Meaning(
        "P", "action of the publication when its log is full ([policies](back-pressure.md))",
        "backpressure.default_policy"),
    "ps-depth": Meaning(
        "P", "largest amount of data that may wait in the log for the sender (on IPC: for the "
             "slowest reader), in bytes (`64k`; at most the publication window), in messages "
             "(`100msg`), or both. Under `drop_oldest`, the largest amount of data that a reader "
             "may be behind",
        "backpressure.default_queue_depth", accepted="64k, 100msg or 64k,100msg"),
    "ps-low-watermark": Meaning(
        "P", "if the log of a publication was full, the publication accepts messages again when "
             "its unsent data has fallen to this fraction of `ps-depth`",
        "backpressure.low_watermark_ratio"),
    "ps-fanout": Meaning(
        "P", "`min`: the stream waits for its slowest reader; `independent`: the stream does not "
             "wait for readers that are behind ([policies](back-pressure.md#fan-out))",
        accepted="min, independent"),
    "ps-fanin": Meaning(
        "S", "`equal`: the publishers of the subscription have equal parts of its receiver window "
             "and of its polls; `priority`: a publisher with a higher `ps-priority` has a larger "
             "part ([fan-in](back-pressure.md#fan-in))", accepted="equal, priority"),
    "ps-retention": Meaning(
        "P", "readers get no data that is more than this number of bytes behind the newest data "
             "([retention](back-pressure.md#retention)); at least two MTUs, at most the length of "
             "the log",
        accepted="bytes, with the units k, m, g"),
    "ps-retention-time": Meaning(
        "P", "readers get no data that is older than this time; the age is the time since the "
             "data arrived in the log on the reader's host "
             "([retention](back-pressure.md#retention)); at least 10 ms",
        accepted="a duration such as 5s"),
    "ps-priority": Meaning(
        "P", "[priority](scheduling.md) among the streams of this sender; without this parameter "
             "the sender computes a priority, which is higher the more recently a reader consumed "
             "data of the stream"),
    "ps-auto-priority": Meaning(
        "P", "with `false`, a stream without `ps-priority` has priority 0, even if its readers "
             "consumed data recently", "scheduler.auto_priority"),
    "ps-never-throttle": Meaning(
        "P", "`true`: the [governor](scheduling.md#pressure) never delays or throttles this "
        "stream"),
    "ps-credit-weight": Meaning(
        "P", "weight of the publication. If a subscription, on any host, "
             "[divides](credits.md#several-publishers) its credits with the policy `weighted` or "
             "`deficit`, the publication's share is in proportion to the weight"),
    "cc": Meaning(
        "S", "[congestion control](congestion-control.md): `static`, `cubic`, `py:module:Class`",
        "subscriptions.congestion_control"),
    "gtag": Meaning(
        "S", "group tag: a sender with `fc=tagged` waits for the receivers that state the sender's "
        "tag in their status messages",
        "subscriptions.group_tag"),
    "reliable": Meaning(
        "S", "with `false`, the receiver does not request missing data, but skips and "
             "[reports](loss-recovery.md) gaps", "subscriptions.reliable"),
    "rcv-wnd": Meaning("S", "receiver window", "subscriptions.receiver_window_bytes"),
    "nak-delay": Meaning(
        "S", "on unicast: time that the receiver waits after it has detected a gap, before it "
        "sends the NAK",
        "timeouts.nak_unicast_delay_ns"),
    "group": Meaning(
        "S", "with `true`, the receiver delays each NAK by a random time, so that many receivers "
             "do not request the same data at once; without this parameter the receiver does so "
             "only on multicast and multi-destination channels"),
    "tether": Meaning(
        "S", "with `false`, the stream does not wait for a slow subscription, but drops the "
        "subscription after a time-out",
        "subscriptions.tether"),
    "rejoin": Meaning(
        "S", "with `false`: when the image of a session has ended, the subscription does not join "
             "this session again",
        "subscriptions.rejoin"),
    "ps-credits": Meaning(
        "S", "largest number of messages that publishers have sent and the application has not "
             "yet released. When this number is reached, publishers have no credit, and their "
             "offers are refused. With `auto` the daemon chooses the number"),
    "ps-credit-burst": Meaning(
        "S", "number of credits that the subscription grants while the application has "
             "released all messages; at this time, it replaces `ps-credits`. The number must be at "
             "least `ps-credits`"),
    "ps-max-message": Meaning("S", "longest message that one credit covers; default: one frame"),
    "ps-credits-required": Meaning("S", "`true`: refuse publishers that do not support credits"),
    "ps-sub-policy": Meaning(
        "S", "with `block`, the stream waits for this subscription if the subscription is slow. "
             "With `ps-sub-policy=independent` or `drop_oldest` the stream does not wait for a "
             "slow subscription ([policies](back-pressure.md#subscriptions))",
        "backpressure.default_policy"),
    "ps-sub-depth": Meaning(
        "S", "with `independent` or `drop_oldest`: if the subscription is more than this number of "
        "bytes (`64k`) or messages (`100msg`) behind, the stream no longer waits for it. `64k,"
        "100msg` states both. A number of bytes is at most half of the subscription's window",
        "backpressure.default_queue_depth", accepted="64k, 100msg or 64k,100msg"),
    "ps-credit-policy": Meaning(
        "S", "rule that [divides](credits.md#several-publishers) the credits among publishers: "
        "`round_robin`, `fifo`, `weighted`, `deficit`. Without this parameter, each publisher "
        "gets all credits", "credits.policy"),
    "ps-credit-pool": Meaning(
        "S", "`stream`: the credits are for this subscription alone. `client`: all subscriptions "
        "of the client that state `client` share one pool of credits, and `ps-credit-policy` "
        "(default: `round_robin`) divides the pool among their publishers"),
    "untethered-window-limit-timeout": Meaning(
        "P S", _UNTETHERED + "if the subscriber is 3/4 of a window behind for longer than this "
        "time, the stream drops the subscriber", "timeouts.untethered_window_limit_timeout_ns"),
    "untethered-linger-timeout": Meaning(
        "P S", _UNTETHERED + "time for which the subscriber may still read the remaining "
        "data after the stream dropped the subscriber", "timeouts.untethered_linger_timeout_ns"),
    "untethered-resting-timeout": Meaning(
        "P S", _UNTETHERED + "time that a dropped subscriber waits before it joins the stream "
        "again",
        "timeouts.untethered_resting_timeout_ns"),
    "so-sndbuf": Meaning("P S", "send buffer of the socket", "sockets.sndbuf_bytes"),
    "so-rcvbuf": Meaning(
        "P S", "receive buffer of the socket; if the channel does not state it, the daemon "
               "sizes the buffer for the receiver window", "sockets.rcvbuf_bytes"),
    "media-rcv-ts-offset": Meaning(
        "S", "the receiver writes into each message, at this offset of the payload, the time at "
        "which the socket received it"),
    "channel-rcv-ts-offset": Meaning(
        "S", "the receiver writes into each message, at this offset of the payload, the time at "
        "which the daemon processed it"),
    "channel-snd-ts-offset": Meaning(
        "P", "the sender writes into each message, at this offset of the payload, the time of "
             "sending. If a spy reads a message before the sender sends it, the timestamp is "
             "missing, or is that of a failed attempt to send"),
}
