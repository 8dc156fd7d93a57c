# SPDX-License-Identifier: Apache-2.0
"""Publish an event when a stream's publishers are ahead of the sender by the stream's configured
depth. Publish another event when the unsent data has fallen to the stream's low watermark. If the
stream does not wait for a reader, publish such a pair of events for this reader too."""

from __future__ import annotations

from penstock.core.driver_events import PressureRelieved, PressureTriggered, ReaderLagged
from penstock.core.driver_types import Cause, ObjectKind
from penstock.daemon.conductor.sagas.pressure_warnings import follow_pressure
from penstock.daemon.conductor.state.model import Client, SubscriberLink
from penstock.daemon.conductor.state.state import State

_CAUSES = {cause.value: cause.name.lower() for cause in Cause}


def _culprit(state: State, event: PressureTriggered) -> str:
    """Return the culprit as ``pressure()`` names it; empty when unknown."""
    if not event.culprit:
        return ""
    if event.source is not None and event.source.ip:
        return f"receiver {event.culprit} at {event.source}"
    client = state.clients.get(event.culprit)
    if client is None:
        return f"id {event.culprit}"
    return _named(client)


def _named(client: Client) -> str:
    name = f" '{client.name}'" if client.name else ""
    return f"client {client.id}{name} (pid {client.pid})"


def on_pressure(state: State, event: PressureTriggered) -> None:
    """Publish ``pressure_triggered`` or ``pressure_relieved``."""
    publication = state.publications.get(event.id)
    if publication is None:
        return
    culprit = _culprit(state, event)
    follow_pressure(state, publication, event, culprit)
    fields = {
        "publication_id": event.id, "stream_id": event.stream_id, "session_id": event.session_id,
        "cause": _CAUSES.get(event.cause, f"cause_{event.cause}"),
        "culprit": culprit, "culprit_id": event.culprit,
        "duration_ns": event.duration_ns, "depth_bytes": event.depth_bytes,
        "peak_bytes": event.peak_bytes, "episodes": event.episodes,
    }
    if isinstance(event, PressureRelieved):
        drained = event.drained if event.drained >= 0 else None
        state.event("pressure_relieved", **fields, drained_messages=drained)
    else:
        state.event("pressure_triggered", **fields)


def on_reader(state: State, link: SubscriberLink | None, event: ReaderLagged) -> None:
    """Publish ``reader_skips`` or ``reader_continues``."""
    if link is None:
        return
    client = link.subscription.client
    spy = event.kind == ObjectKind.PUBLICATION and not link.subscription.plan.channel.startswith(
        "aeron:ipc")
    cause = Cause.SPY if spy else Cause.SLOW_SUBSCRIBER
    fields = {
        "subscription_id": link.subscription.id, "stream_id": event.stream_id,
        "session_id": event.session_id, "cause": _CAUSES[cause], "culprit": _named(client),
        "culprit_id": client.id, "behind_bytes": event.behind,
    }
    if event.lagged:
        state.event("reader_skips", **fields)
    else:
        state.event(
            "reader_continues", **fields, skipped_messages=event.messages,
            duration_ns=event.duration_ns,
        )
