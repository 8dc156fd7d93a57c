# SPDX-License-Identifier: Apache-2.0
"""List the keys of the daemon's status, with their meaning, for the reference page.

``client.status()`` and ``penstock stat --once --json`` return these keys. A test checks that this
table describes every field of the classes in :mod:`penstock.daemon.observe.status`.
"""

from __future__ import annotations

from typing import Final

import attrs

from penstock.daemon.groups.status import GroupLogStatus, GroupStatus
from penstock.daemon.observe import status

_COMMON: Final[dict[str, str]] = {
    "channel": "channel as the client stated it",
    "stream_id": "stream id of the channel",
    "session_id": "session id that the publisher's daemon chose or the channel stated",
    "relay_path": "ids of the [relays](relay.md) that the stream has passed, the first relay first",
    "log_bytes": "memory reserved for the log buffer, in bytes",
}
KEYS: Final[dict[tuple[str, type], dict[str, str]]] = {
    ("the daemon", status.DaemonStatus): {
        "version": "version of penstock",
        "pid": "process id of the daemon",
        "directory": "directory of the daemon",
        "daemon_id": "random number of the directory; a new daemon that adopts the directory keeps "
        "it",
        "epoch": "time of the daemon's start, in milliseconds since 1970",
        "threading": "threads of the agents: `dedicated`, `shared_network` or `shared`",
        "uptime_s": "time since the daemon's start, in seconds",
        "storage_budget_bytes": "memory that all log buffers together may reserve, in bytes",
        "storage_used_bytes": "memory that log buffers have reserved, in bytes",
        "malformed_messages": "number of malformed messages that the daemon received from clients",
        "duty_cycles": "number of duty cycles of each agent since the start",
        "clients": "list of clients, see the table below",
        "publications": "list of publications, see the table below",
        "images": "list of images, see the table below",
        "subscriptions": "list of subscriptions, see the table below",
        "endpoints": "list of sockets, see the table below",
        "groups": "list of consumer groups, see the table below",
        "groups_expired": "number of consumer groups that the daemon has ended because no member "
        "read them",
        "scheduler": "state of the sender's scheduler and governor, see the table below",
    },
    ("`clients`", status.ClientStatus): {
        "client_id": "id that the daemon gave to the client",
        "name": "name from `connect(name=...)`, or an empty text",
        "pid": "process id of the client",
        "uid": "user id of the client's process",
        "publications": "number of publications that the client has added",
        "subscriptions": "number of subscriptions that the client has added",
        "counters": "number of counters that the client has added",
    },
    ("`publications`", status.PublicationStatus): _COMMON | {
        "publication_id": "registration id of the publication",
        "state": "`active`; `draining`: all clients have closed the publication, and the sender "
        "still sends its data; `linger`: all data was sent, and receivers may request retransmits; "
        "`closing`; `done`",
        "exclusive": "whether only one client can publish on the publication",
        "clients": "number of clients that have added the publication",
        "local_subscribers": "number of subscriptions of this host that read the log directly",
        "connected": "whether an offer would find a receiver",
        "receivers": "number of receivers that the sender has heard within the receiver time-out",
        "position": "position of the publisher: the end of the last claimed message",
        "consumer_position": "IPC: position of the slowest reader; UDP: position up to which the "
        "sender has sent",
        "limit": "position up to which the publisher may write",
        "strategy": "flow control, as the channel writes it in `fc=`; `unicast` for one receiver "
        "and for IPC",
        "rate_bytes_per_s": "the lower of `ps-rate` and the rate of NAK-strength control; 0 "
        "without a rate",
        "pressure_signals": "PRESSURE frames received from receivers",
        "strategy_failures": "failures of a flow control in Python: an exception, a wrong answer, "
        "or a late answer",
        "cause": "the [cause](back-pressure.md) that holds the publisher now; `none` if nothing "
        "holds it",
        "culprit": "the receiver or client that causes the blocking, as text; empty if unknown",
        "culprit_client": "client id of the culprit, on this host or on the receiver's host; 0 if "
        "unknown",
        "culprit_name": "name of the culprit's client; empty if unknown",
        "backlog_bytes": "bytes that the culprit's client has not read; 0 if unknown",
        "held_ns": "time for which the present cause and culprit have held the publisher without a "
        "break",
        "blocked_ns": "time for which each cause has held the publisher since its start",
        "blocked_by_ns": "time for which each culprit has held the publisher since its start",
        "refused": "number of refused offers by cause",
        "refused_ns": "total time from the first refused offer to the next accepted offer",
        "refused_episodes": "number of periods that `refused_ns` adds up",
        "queue_depth_bytes": "UDP: accepted bytes that the sender has not sent; IPC: bytes that "
        "the slowest reader has not read",
        "queue_peak_bytes": "highest queue depth since the publication was added",
        "watermark": "`normal`, `high_watermark`, `paused` or `low_watermark`",
        "pressure_events": "how often the publishers have reached the depth of the queue",
        "pressure_ns": "total time of the periods under pressure: from the moment at which the "
        "publishers reach the depth of the queue until the queue is below the low watermark",
        "drained_messages": "messages that left the queue during the periods of `pressure_ns`",
        "policy": "policy for a full queue, or an empty text",
        "dropped_messages": "messages that the publication's policy has dropped",
        "dropped_bytes": "payload bytes of the messages that the publication's policy has dropped",
        "dropped_by": "dropped messages by reason: `log_full`, `storage` or `rate`",
        "credits_granted": "messages that the receivers have granted; -1 without credits",
        "credits_spent": "granted messages that the publishers have used; -1 without credits",
        "peers": "list of live receivers, see the table below; `GET /flows` leaves it empty",
        "warnings": "settings with which back-pressure cannot work well, each with its remedy",
        "throttled": "offers that returned `THROTTLED`",
        "deferrals": "number of times that the governor has delayed data of the stream",
        "waits": "number of times that the stream had data and waited for its turn to send",
        "waited_ns": "total time of the waits that `waits` counts",
    },
    ("`peers` of a publication", status.ReceiverStatus): {
        "receiver_id": "id that the receiver states in its status messages",
        "address": "address from which the receiver's status messages come",
        "position": "position in the receiver's last status message",
        "window": "receiver window in the receiver's last status message, in bytes",
        "penstock": "whether the receiver is penstock, and not Aeron",
        "reason": "the cause that the receiver states for its limit; empty if it states none",
        "reason_client": "client id of the slowest reader on the receiver's host; 0 if unknown",
        "reason_name": "name of the client in `reason_client`; empty if the receiver does not "
        "state it",
        "reason_host": "host of the client in `reason_client`; empty if the receiver does not "
        "state it",
        "backlog_bytes": "bytes that the client in `reason_client` has not read",
    },
    ("`images`", status.ImageStatus): _COMMON | {
        "image_id": "id of the image",
        "source": "address of the sender",
        "strategy": "flow control that the sender states; empty if unknown",
        "state": "`active`; `draining`: the stream has ended, and subscriptions still read it; "
        "`linger`: only slow subscriptions read the log file; `done`",
        "subscribers": "number of local subscriptions that read the image",
        "position": "position up to which the receiver has all data",
        "high_water": "highest position that the receiver has received",
        "slowest_subscriber": "position of the slowest local subscription",
        "gaps": "ranges that are missing now",
        "lost_bytes": "missing bytes that local subscriptions will never get; a Gap has reported "
        "them",
        "foreign_datagrams": "datagrams of this session from addresses other than the source; "
        "the receiver has dropped them",
        "window_bytes": "receiver window",
        "rcvbuf_bytes": "size of the socket's receive buffer, as the socket option `SO_RCVBUF` "
        "counts",
        "rcvbuf_wanted_bytes": "receive buffer that the window needs",
        "congestion": "congestion control of the image with its options",
        "congestion_failures": "failures of a congestion control in Python: an exception, a wrong "
        "answer, or a late answer",
    },
    ("`subscriptions`", status.SubscriptionStatus): _COMMON | {
        "subscription_id": "registration id of the subscription",
        "client_id": "id of the client that has added the subscription",
        "images": "number of images and local publications that the subscription reads",
        "credits": "credits of each publisher or, with a policy, of all publishers together; 0 if "
        "the subscription grants no credits",
        "credit_policy": "policy that divides the credits among publishers; empty if each "
        "publisher gets all credits",
        "withheld": "whether the subscription withholds its credits",
        "credits_granted": "messages granted to all publishers since they joined",
        "credits_returned": "granted messages that the application has released",
        "credits_outstanding": "messages granted and not released",
        "credits_leaked": "credits whose handles were garbage-collected without a release",
        "skipped": "list of sessions whose data the subscription skipped because it was too far "
        "behind, see the table below",
    },
    ("`skipped` of a subscription", status.SkipStatus): {
        "reader": "slot of the reader in shared memory",
        "messages": "number of skipped messages; gaps in which this number is unknown do not count",
        "bytes": "number of skipped bytes, headers included",
    },
    ("`endpoints`", status.EndpointStatus): _COMMON | {
        "endpoint_id": "id of the socket",
        "direction": "`send` or `receive`",
        "addresses": "local addresses of the socket; for a receiving socket, its destinations",
        "users": "number of publications or subscriptions on the socket",
        "state": "`open` or `closing`",
    },
    ("`groups`", GroupStatus): _COMMON | {
        "group_id": "id of the group at this daemon",
        "name": "name of the group",
        "expires_s": "time after which the daemon ends the group if no member reads it, in seconds",
        "lag_bytes": "bytes of all logs together that no member has committed",
        "window_left_bytes": "bytes that the sender of the fullest log may send before it waits; "
        "-1 if the group holds no live log",
        "logs": "list of logs, see the table below",
    },
    ("`logs` of a group", GroupLogStatus): _COMMON | {
        "log_id": "id of the image or publication",
        "strategy": "flow control that the sender states; empty if unknown, or if the stream has "
        "ended",
        "committed": "position up to which members have committed",
        "end_position": "position up to which the log has data",
        "lag_bytes": "difference of `end_position` and `committed`",
        "window_bytes": "window of the group in this log",
        "window_left_bytes": "bytes that the sender may still send before it waits; 0 if the "
        "stream has ended",
        "ended": "whether the stream has ended",
    },
    ("`scheduler`", status.SchedulerStatus): {
        "sampled": "whether the governor has taken a sample since the start",
        "pressure": "pressure of the sender, from 0 to 1",
        "signals": "the signals `depth`, `latency` and `busy` of the pressure, from 0 to 1",
        "coalesce_ns": "longest time for which a datagram that is not full may wait",
        "status_interval_ns": "shortest time between two status messages of an image",
        "retry_after_ns": "time after which throttled publishers should try again; 0 if no "
        "publisher is throttled",
        "defers": "whether the governor withholds data of streams with a priority below 0",
        "ready": "number of waiting streams in each band",
        "waits": "number of times that a stream with data waited for its turn to send",
        "waited_ns": "total time of the waits that `waits` counts",
        "deferrals": "number of times that the governor has delayed data",
        "throttled": "number of offers that returned `THROTTLED`, over all present streams",
    },
}


def rows(kind: type) -> list[tuple[str, str]]:
    """Return key and meaning of each field of a class, in the order of the class."""
    meanings = next(texts for (_, each), texts in KEYS.items() if each is kind)
    return [(field.name, meanings[field.name]) for field in attrs.fields(kind)]
