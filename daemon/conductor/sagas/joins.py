# SPDX-License-Identifier: Apache-2.0
"""Report receivers that request to join a multicast group but cannot join. If a receiver cannot
join a group, both the sender's daemon and the receiver's daemon report the failed join in their
logs and event feeds.

With the flow controls ``min`` and ``tagged``, the sender keeps its position limit constant while a
receiver joins, so the group may have to wait. The sender limits how often and how long it waits for
joining receivers (docs/decisions/0095). For each publication and each reason for which a receiver
cannot join, the daemon logs at most one line in ``LOG_EVERY_NS``. The number of events has no such
limit: for each failed join that the sender thread reports, the daemon publishes an event."""

from __future__ import annotations

from typing import Final

from penstock.core.driver_events import Join, Setup
from penstock.core.driver_types import JoinVerdict
from penstock.daemon.conductor.saga import Refused
from penstock.daemon.conductor.sagas.linking import report_refusal
from penstock.daemon.conductor.state.model import RecvEndpoint
from penstock.daemon.conductor.state.state import State

LOG_EVERY_NS: Final = 10_000_000_000
_REMEMBERED: Final = 256                # number of logged refusals kept for each endpoint
_REASONS: Final = {
    JoinVerdict.EXPIRED: "the receiver did not join within the time-out, and the "
    "group continues without this receiver",
    JoinVerdict.TOO_SOON: "the group waited for this receiver less than one time-out ago",
    JoinVerdict.NOT_JOINED: (
        "the group has already waited for a receiver at this address, which did not join"
    ),
    JoinVerdict.SPENT: "the group waited for joining receivers during one of the last four "
    "time-outs",
}


def on_join(state: State, event: Join) -> None:
    """Log that the sender of a group does not wait, or no longer waits, for a receiver that
    requests to join."""
    publication = state.publications.get(event.id)
    if publication is None:
        return
    reason = JoinVerdict(event.verdict)
    fields = {
        "publication_id": event.id, "stream_id": publication.stream_id,
        "session_id": publication.session_id, "receiver_id": event.receiver_id,
        "source": str(event.source), "reason": reason.name.lower(), "refusals": event.refused,
    }
    if reason is JoinVerdict.EXPIRED:
        state.event("join_expired", **fields)
    else:
        state.event("join_refused", **fields)
    last_ns = publication.joins_logged.get(reason)
    if last_ns is not None and state.now_ns - last_ns < LOG_EVERY_NS:
        return
    publication.joins_logged[reason] = state.now_ns
    verb = "stops waiting" if reason is JoinVerdict.EXPIRED else "does not wait"
    state.error(
        f"join ({reason.name.lower()})",
        publication.plan.channel if event.source is None else event.source,
        f"{publication.plan.channel}: stream {publication.stream_id} {verb} for the receiver at "
        f"{event.source}: {_REASONS[reason]}; see the log of the receiver's daemon",
    )


def report_no_image(state: State, endpoint: RecvEndpoint, event: Setup, refused: Refused
                    ) -> None:
    """Log that a subscription of this daemon cannot join a stream, at most once in LOG_EVERY_NS for
    a session.

    An operator needs this log line. Until the subscription can join, the sender repeats the SETUP,
    and the other receivers of the group may have to wait.
    """
    key = (event.stream_id, event.session_id)
    last_ns = endpoint.refusals.get(key)
    if last_ns is not None and state.now_ns - last_ns < LOG_EVERY_NS:
        return
    # other hosts choose sessions, so the table is bounded
    if len(endpoint.refusals) >= _REMEMBERED:
        endpoint.refusals.pop(next(iter(endpoint.refusals)))
    endpoint.refusals.pop(key, None)
    endpoint.refusals[key] = state.now_ns
    what = f"session {event.session_id} of stream {event.stream_id} from {event.source}"
    report_refusal(
        state, f"{endpoint.channel}: cannot join {what}", refused, source=event.source
    )
