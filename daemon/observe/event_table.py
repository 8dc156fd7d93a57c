# SPDX-License-Identifier: Apache-2.0
"""List the events that the daemon publishes, with their meaning, for the reference page and tools.

:data:`EVENTS` has the names of all events that the conductor publishes; :data:`TRACE_ONLY` has the
names of events that only a trace contains. `tools/reference.py` reads the fields from the
conductor's calls.
"""

from __future__ import annotations

from typing import Final

EVENTS: Final[dict[str, str]] = {
    "client_added": "a client connected",
    "client_gone": "a client ended",
    "client_returned": "a client returned: to a new daemon after the old daemon died, or with a "
    "new process after `client_lingers`",
    "client_lingers": "the process of a [relay](relay.md) ended; the daemon keeps its objects for "
    "`linger_ns`",
    "publication_added": "a client added a publication",
    "publication_state": "a publication changed its state",
    "publication_connected": "a publication has receivers, or no longer has any",
    "publication_blocked": "a publisher left a claim open",
    "publication_unblocked": "the sender padded over the open claim",
    "pressure_triggered": "the publishers of a stream reached its "
    "[depth](back-pressure.md#watermarks): cause and culprit; at most once a second for a stream, "
    "and `episodes` counts how often since the last such event",
    "pressure_relieved": "the log has drained to the low watermark: duration, peak, and messages "
    "drained meanwhile (none: not counted)",
    "backpressure_warning": "a setting or a load defeats back-pressure: `kind` is `depth`, "
    "`low_watermark` or `sustained`, `message` has the remedy; once each for a publication",
    "publication_error": "a receiver rejected the stream: code and message",
    "join_expired": "a receiver requested to join a `min` or `tagged` group and did not join "
    "within its hold",
    "join_refused": "a group does not wait for a receiver that requests to join; `refusals` counts "
    "the requests since the last such event",
    "strategy_silent": "a flow control in Python has not answered for 5 s: `max` applies",
    "strategy_answers": "that flow control answers again",
    "congestion_silent": "a congestion control in Python has not answered for 5 s: the receiver "
    "window alone applies",
    "congestion_answers": "the congestion control answers again",
    "subscription_added": "a client added a subscription",
    "subscription_removed": "a subscription was removed",
    "image_available": "a stream arrived at a subscription",
    "image_unavailable": "a stream ended for a subscription, and why",
    "image_state": "an image changed its state",
    "second_source": "datagrams of an image's session come from an address that the receiver does "
    "not follow, and the followed sender is alive ([trust](trust.md))",
    "loss": "bytes that were missing and requested",
    "reader_outrun": "under `fc=nak`, a reader slower than the lowest rate misses data",
    "terms_given_back": "bytes of an idle stream's log that the daemon returned to the file system "
    "and the budget",
    "destination": "a receiver joined, or left, a dynamic multi-destination channel",
    "destinations_full": "all 2048 places of a dynamic multi-destination channel are taken: a "
    "receiver was refused (at most one event a second; in the error log too)",
    "resolved": "a host name has another address",
    "receive_buffer_short": "a receiver window does not fit into its socket's [receive "
    "buffer](operating.md#receive-buffers)",
    "endpoint_error": "an error of a socket (in the error log too)",
    "refused": "a refused object that no client requested, such as an image (in the error log too)",
    "group_opened": "a client opened a [consumer group](consumer-groups.md)",
    "group_closed": "a client closed a consumer group",
    "credits_withheld": "the credits of a subscription are withheld, or granted again",
    "group_expired": "a consumer group expired",
    "group_retains": "a consumer group keeps the log of an ended stream",
    "group_released": "a consumer group released the log of an ended stream",
    "adopted": "objects that a new daemon adopted",
}

TRACE_ONLY: Final[dict[str, str]] = {
    "started": "the trace begins: facts about the daemon and its host",
    "stopping": "the daemon stops: objects that it leaves for the next one",
    "sample": "positions and counters ([traces](operating.md#traces))",
    "trace_dropped": "events that the trace lost because the disk was slow or full",
}
