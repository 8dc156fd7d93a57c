# SPDX-License-Identifier: Apache-2.0
"""List the events that the daemon publishes, with their meaning, for the reference page and tools.

:data:`EVENTS` has the names of all events that the conductor publishes; :data:`TRACE_ONLY` has the
names of events that only a trace contains. For the reference page, `tools/reference.py` finds the
fields of each event in the conductor's source code.
"""

from __future__ import annotations

from typing import Final

EVENTS: Final[dict[str, str]] = {
    "client_added": "a client connected",
    "client_gone": "a client ended",
    "client_returned": "a client has connected again, after its daemon died and a new daemon "
                       "started. For a relay: a new relay process has taken over the client of "
                       "the process that ended (event `client_lingers`)",
    "client_lingers": "the process of a [relay](relay.md) ended; the daemon keeps the objects of "
                      "the relay for `linger_ns`",
    "publication_added": "a client added a publication",
    "publication_state": "a publication changed its state",
    "publication_connected": "the first receiver of a publication connected, or the last "
                             "receiver left",
    "publication_blocked": "a publisher claimed space in the log, but has not committed the claim",
    "publication_unblocked": "a publisher did not commit its claim in time, so the sender replaced "
    "this claim by padding",
    "pressure_triggered": "the unsent data of a stream reached `ps-depth` "
                          "([depth](back-pressure.md#watermarks)). The daemon publishes at most "
                          "one event `pressure_triggered` a second for a stream; `episodes` counts "
                          "how often the data reached the depth since the last event",
    "pressure_relieved": "after the event `pressure_triggered`, the unsent data of the stream fell "
                         "to the low watermark. `drained_messages` is the number of messages that "
                         "left the log between the two events (`None` if unknown)",
    "reader_skips": "a subscription with `independent` or `drop_oldest` fell behind its depth, so "
                    "the stream no longer waits for it ([rules](back-pressure.md#subscriptions)). "
                    "The daemon publishes at most one event `reader_skips` a second for a reader",
    "reader_continues": "after the event `reader_skips`, the subscription caught up to half of its "
                        "depth. `skipped_messages` is the number of messages that it skipped in "
                        "`duration_ns`",
    "backpressure_warning": "a setting or a load prevents back-pressure from working well. `kind` "
                            "is `depth`, `low_watermark`, `receiver_timeout` or `sustained`, "
                            "and `message` states the remedy. The daemon publishes each `kind` "
                            "of warning once for a publication",
    "publication_error": "a receiver rejected the stream; `code` and `message` state the reason",
    "join_expired": "a receiver requested to join a `min` or `tagged` group. The sender waited for "
                    "this receiver for a limited time, and the receiver did not join in this time",
    "join_refused": "a receiver requested to join a `min` or `tagged` group, and the sender "
    "does not wait for it; `refusals` counts the requests since the last event "
    "`join_refused`",
    "strategy_silent": "a flow control in Python has not answered for 5 s; the sender uses `max` "
    "until it answers",
    "strategy_answers": "a flow control in Python answers again after the event `strategy_silent`",
    "congestion_silent": "a congestion control in Python has not answered for 5 s; until it "
    "answers, only the receiver window limits the sender",
    "congestion_answers": "a congestion control in Python answers again after the event "
    "`congestion_silent`",
    "subscription_added": "a client added a subscription",
    "subscription_removed": "a subscription was removed",
    "image_available": "a stream arrived at a subscription",
    "image_unavailable": "a stream ended for a subscription; `reason` states why",
    "image_state": "an image changed its state",
    "second_source": "two addresses send datagrams of the same session. The receiver accepts only "
                     "datagrams of the first address while that address is active; the field "
                     "`address` states the second address ([trust](trust.md))",
    "loss": "a receiver found a gap in a stream and requested the missing bytes",
    "reader_outrun": "under `fc=nak`, a reader was slower than the lowest rate to which a sender "
    "slows down, and missed data",
    "terms_given_back": "a stream was idle, so the daemon released the memory of unused terms of "
                        "the stream's log; the storage budget grew by `bytes`",
    "destination": "a receiver joined, or left, a dynamic multi-destination channel",
    "destinations_full": "a dynamic multi-destination channel has its maximum of 2048 "
                         "receivers, and refused another receiver (at most one event a second; "
                         "also in the error log)",
    "resolved": "the host name of a channel now resolves to another address",
    "receive_buffer_short": "the receive buffer of a socket is smaller than the receiver window "
    "needs ([receive buffers](operating.md#receive-buffers))",
    "endpoint_error": "a socket of a channel reported an error (also in the error log)",
    "refused": "the daemon refused to create an object that no client had requested, such as an "
    "image (also in the error log)",
    "group_opened": "a client opened a [consumer group](consumer-groups.md)",
    "group_closed": "a client closed a consumer group",
    "credits_lost": "an application dropped the handles of credits without releasing them. "
                    "`credits` is the number of credits lost since the last event `credits_lost` "
                    "of this reader, `leaked` the number of all lost credits; the event names the "
                    "client and the stream",
    "credits_withheld": "the credits of a subscription are withheld, or granted again",
    "group_expired": "a consumer group expired",
    "group_retains": "a consumer group keeps the log of an ended stream",
    "group_released": "a consumer group released the log of an ended stream",
    "adopted": "a new daemon adopted the objects of a dead daemon; the fields state how many "
    "objects of each kind it adopted",
}

TRACE_ONLY: Final[dict[str, str]] = {
    "started": "the trace begins with this event; its fields describe the daemon and its host",
    "stopping": "the daemon stops; `kept` lists the objects that it leaves for the next daemon",
    "sample": "positions and counters ([traces](operating.md#traces))",
    "trace_dropped": "at this place of the trace, events are missing because the disk was slow or "
    "full",
}
