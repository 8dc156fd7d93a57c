# SPDX-License-Identifier: Apache-2.0
"""The table ``[timeouts]`` of the configuration."""

from __future__ import annotations

from typing import Final

import attrs

from penstock.config.settings._fields import duration, integer, optional_duration

_SECOND_NS: Final = 10**9
_MILLISECOND_NS: Final = 10**6
_RARELY: Final = "Rarely."


@attrs.frozen(kw_only=True)
class TimeoutsConfig:
    """Intervals and time-outs of the protocol between sender and receiver, and of the daemon."""

    setup_interval_ns: int = duration(
        100 * _MILLISECOND_NS,
        "Interval at which a sender repeats its SETUP until a receiver answers.", _RARELY)
    heartbeat_interval_ns: int = duration(
        100 * _MILLISECOND_NS,
        "Interval between heartbeats on a stream that has just become idle.", _RARELY)
    idle_after_ns: int = duration(
        _SECOND_NS,
        "After this time without new data, a stream's heartbeats and status messages become "
        "less frequent.", _RARELY)
    idle_heartbeat_interval_ns: int = duration(
        _SECOND_NS, "Interval between heartbeats on a stream that has been idle for longer than "
                    "idle_after_ns.",
        "\"100ms\" is Aeron's interval. Keep this interval well below the "
        "image_liveness_timeout_ns of the receivers.")
    status_message_timeout_ns: int = duration(
        200 * _MILLISECOND_NS,
        "Longest interval between a receiver's status messages on an active stream.", _RARELY)
    connection_timeout_ns: int = duration(
        5 * _SECOND_NS, "If no receiver sends a status message for this time, a publication "
                        "counts as not connected.",
        "Raise this value on paths with long outages.")
    image_liveness_timeout_ns: int = duration(
        10 * _SECOND_NS, "If no datagram of a sender arrives for this time, the receiver ends "
                         "the sender's image.",
        "Raise this value on paths with long outages.")
    image_linger_ns: int = duration(
        10 * _SECOND_NS, "Time for which the daemon keeps the log of an ended image, so that slow "
                         "subscribers can finish reading it.",
        "Raise this value if slow readers miss the last data of ended images.", low=0)
    pending_setup_timeout_ns: int = duration(
        _SECOND_NS, "Interval at which a receiver whose channel has a control address requests a "
                    "SETUP from the sender.",
        _RARELY)
    unblock_timeout_ns: int = duration(
        15 * _SECOND_NS, "If a client claims space in the log and does not complete the message "
                         "within this time, the sender fills the space with padding.",
        "Raise this value if publishers are stopped in a debugger.")
    retransmit_delay_ns: int = duration(
        0, "Time that the sender waits between a NAK and the retransmit.",
        "Raise this value for large multicast groups, in which many receivers request the same "
        "data.", low=0)
    retransmit_linger_ns: int = duration(
        10 * _MILLISECOND_NS,
        "After a retransmit, the sender ignores further NAKs for the same range during this time.",
        "If receivers repeat NAKs while a retransmit is in flight, choose about one round trip.",
        low=0)
    nak_unicast_delay_ns: int = duration(
        1000, "Time from the detection of a gap to its NAK, on unicast channels.", "Raise this "
                                                                                   "value if "
                                                                                   "the "
                                                                                   "network "
                                                                                   "reorders "
                                                                                   "datagrams.")
    nak_unicast_retry_ratio: int = integer(
        100, 1, 10**6, "While the receiver does not know the round-trip time, it repeats a "
                       "NAK after nak_unicast_delay_ns multiplied by this value.",
        _RARELY)
    nak_multicast_max_backoff_ns: int = duration(
        10 * _MILLISECOND_NS,
        "Longest random time that a receiver of a multicast group waits before it sends a NAK.",
        "Raise this value for large multicast groups, so that fewer receivers send the same "
        "NAK.")
    nak_multicast_group_size: int = integer(
        10, 1, 100_000, "Expected number of receivers of a multicast group, from which the random "
                        "NAK delay is computed.",
        "Set this key to the number of receivers in your multicast groups.")
    untethered_window_limit_timeout_ns: int = duration(
        5 * _SECOND_NS, "If a subscriber with tether=false is 3/4 of a window behind for this "
                        "time, the daemon drops the subscriber. The stream then no longer waits "
                        "for this subscriber.",
        _RARELY)
    untethered_linger_timeout_ns: int | None = optional_duration(
        "Time for which a dropped subscriber with tether=false may still read the remaining "
        "data; not set: the value of untethered_window_limit_timeout_ns.", _RARELY)
    untethered_resting_timeout_ns: int = duration(
        10 * _SECOND_NS, "Time after which a dropped subscriber with tether=false joins the stream "
                         "again.", _RARELY)
    resolution_interval_ns: int = duration(
        _SECOND_NS, "If a peer with a host name is silent, the daemon looks up the peer's address "
                    "again, at most once in this interval.", _RARELY)
    reattach_timeout_ns: int = duration(
        10 * _SECOND_NS, "If a client of a dead daemon does not connect to the new daemon within "
                         "this time, the new daemon removes the client's objects.",
        "Raise this value if clients are stopped in a debugger during a restart of the daemon.")
