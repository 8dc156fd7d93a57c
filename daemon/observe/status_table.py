# SPDX-License-Identifier: Apache-2.0
"""List the keys of the daemon's status, with their meaning, for the reference page.

``client.status()`` and ``penstock stat --once --json`` return the keys of this table. A test checks
that this table describes every field of the classes in :mod:`penstock.daemon.observe.status`.
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
        "daemon_id": "random number that identifies the daemon's directory; a new daemon that "
        "adopts the directory keeps this number",
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
        "state": "`active`; `awaited`: the client's process has ended, or has not returned after a "
        "restart of the daemon. The daemon keeps the client's objects for the linger time",
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
        "connected": "whether the publication is connected; if not, offers are refused",
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
        "cause": "the [cause](back-pressure.md) that blocks the publisher now; `none` if nothing "
        "blocks it",
        "culprit": "the receiver or client that causes the blocking, as text; empty if unknown",
        "culprit_client": "client id of the culprit, on this host or on the receiver's host; 0 if "
        "unknown",
        "culprit_name": "name of the culprit's client; empty if unknown",
        "culprit_awaited": "`true` if the process of the culprit's client has ended, and the "
        "daemon keeps the client's objects for the next process (see [relays](relay.md))",
        "backlog_bytes": "received bytes that the client in `culprit_client` has not read; 0 if "
        "unknown",
        "held_ns": "time since the `cause` and `culprit` of this row began to block the publisher",
        "blocked_ns": "total time for which each cause has blocked the publisher",
        "blocked_by_ns": "total time for which each culprit has blocked the publisher",
        "refused": "number of refused offers by cause",
        "refused_ns": "total time in which offers were refused: each period begins with a refused "
        "offer and ends with the next accepted offer",
        "refused_episodes": "number of the periods in which offers were refused",
        "queue_depth_bytes": "UDP: accepted bytes that the sender has not sent; IPC: bytes that "
        "the slowest reader has not read",
        "queue_peak_bytes": "highest queue depth since the publication was added",
        "watermark": "`normal`, `high_watermark`, `paused` or `low_watermark`",
        "pressure_events": "how often the publishers have reached the depth of the queue",
        "pressure_ns": "total time of the periods under pressure: from the moment at which the "
        "publishers reach the depth of the queue until the queue is below the low watermark",
        "drained_messages": "number of messages that left the queue during the periods that "
        "`pressure_ns` measures",
        "policy": "policy for a full queue, or an empty text",
        "dropped_messages": "messages that the publication's policy has dropped",
        "dropped_bytes": "payload bytes of the messages that the publication's policy has dropped",
        "dropped_by": "dropped messages by reason: `log_full`, `storage` or `rate`",
        "credits_granted": "number of credits that the receivers have granted; -1 if the stream "
        "uses no credits",
        "credits_spent": "number of granted credits that the publishers have used; -1 if the "
        "stream uses no credits",
        "peers": "list of live receivers, see the table below; `GET /flows` leaves it empty",
        "warnings": "list of settings of this publication that prevent back-pressure from working "
        "well, each with a remedy",
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
        "penstock": "whether the receiver is a penstock daemon, not an Aeron driver",
        "reason": "why the receiver limits the stream, as the receiver states it; empty if the "
        "receiver states no cause",
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
        "`linger`: the stream and its image have ended, but slow subscriptions still read the log; "
        "`done`",
        "subscribers": "number of local subscriptions that read the image",
        "position": "position up to which the receiver has all data",
        "high_water": "highest position that the receiver has received; data below it may be "
        "missing",
        "slowest_subscriber": "position of the slowest local subscription",
        "gaps": "ranges that are missing now",
        "lost_bytes": "missing bytes that local subscriptions will never get; the client reported "
        "them to the application as a Gap",
        "foreign_datagrams": "datagrams of this session from addresses other than the source; "
        "the receiver has dropped them",
        "window_bytes": "receiver window",
        "rcvbuf_bytes": "size of the socket's receive buffer, as the socket option `SO_RCVBUF` "
        "counts",
        "rcvbuf_wanted_bytes": "size of the receive buffer that the receiver window needs, in "
        "bytes",
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
        "credits_granted": "number of credits granted to all publishers since they joined",
        "credits_returned": "number of granted credits that have returned because the application "
        "released the messages",
        "credits_outstanding": "messages granted and not released",
        "credits_leaked": "credits whose handles were garbage-collected without a release",
        "skipped": "list of sessions whose data the subscription skipped because the reader was "
        "too far behind or the data was too old, see the table below",
        "skipped_messages": "sum of the messages in `skipped`",
        "unread_bytes": "bytes that the subscription can read and has not released, headers "
        "included; with several images, the number of the image that has most of these bytes",
    },
    ("`skipped` of a subscription", status.SkipStatus): {
        "reader": "slot of the reader in shared memory",
        "messages": "number of skipped messages; gaps in which this number is unknown do not count",
        "bytes": "number of skipped bytes, headers included",
        "reason": "`behind`: the reader was too far behind, under `ps-sub-policy`; `retention`: "
        "the publication no longer retained the data",
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
        "expires_s": "time until the daemon ends the group if no member sends a request, in "
        "seconds",
        "lag_bytes": "number of bytes that no member has committed, in all logs together",
        "window_left_bytes": "bytes that the sender of the fullest log may send before it must "
        "wait; -1 if the group has no live log",
        "logs": "list of logs, see the table below",
    },
    ("`logs` of a group", GroupLogStatus): _COMMON | {
        "log_id": "id of the image or publication",
        "strategy": "flow control that the sender states; empty if unknown, or if the stream has "
        "ended",
        "committed": "position up to which members have committed",
        "end_position": "position up to which the log has data",
        "lag_bytes": "difference of `end_position` and `committed`",
        "window_bytes": "bytes that members may leave uncommitted in this log before the sender "
        "waits",
        "window_left_bytes": "bytes that the sender may still send before it waits; 0 if the "
        "stream has ended",
        "ended": "whether the stream has ended",
    },
    ("`scheduler`", status.SchedulerStatus): {
        "sampled": "whether the governor has taken a sample since the start",
        "pressure": "pressure of the sender, from 0 to 1",
        "signals": "the signals `depth`, `latency` and `busy` of the pressure, from 0 to 1",
        "coalesce_ns": "longest time for which the sender delays a datagram that has room for "
        "further messages",
        "status_interval_ns": "shortest time between two status messages of an image",
        "retry_after_ns": "time after which throttled publishers should try again; 0 if no "
        "publisher is throttled",
        "defers": "whether the governor now delays the data of all streams with a priority below 0",
        "ready": "number of waiting streams in each band",
        "waits": "number of times that a stream with data waited for its turn to send",
        "waited_ns": "total time of the waits that `waits` counts",
        "deferrals": "number of times that the governor has delayed data",
        "throttled": "number of offers that returned `THROTTLED`, over all present streams",
    },
}


def rows(kind: type) -> list[tuple[str, str]]:
    """Return the key and the meaning of each field of a status class, in the order in which the
    class defines them."""
    meanings = next(texts for (_, each), texts in KEYS.items() if each is kind)
    return [(field.name, meanings[field.name]) for field in attrs.fields(kind)]
