# SPDX-License-Identifier: Apache-2.0
"""Create samples of a host's streams for a trace. The daemon and the simulator both create samples
with this module."""

from __future__ import annotations

from typing import Any, Final

from penstock.core.admin import Cnc, Shared
from penstock.core.driver import Driver
from penstock.core.driver_types import Cause
from penstock.daemon.conductor.snapshot import ImageSnapshot, PublicationSnapshot, Snapshot

#: System counters of network traffic; each only grows.
COUNTERS: Final = {
    "sent_bytes": 0, "received_bytes": 1, "naks_sent": 5, "naks_received": 6,
    "status_messages_sent": 7, "status_messages_received": 8, "heartbeats_sent": 9,
    "heartbeats_received": 10, "retransmits_sent": 11, "under_runs": 12, "over_runs": 13,
    "invalid_packets": 14, "back_pressure_events": 18, "loss_gap_fills": 23,
    "retransmitted_bytes": 36,
}


def sample(
    snapshot: Snapshot, driver: Driver, shared: Shared, cnc: Cnc, *, now_ns: int
) -> dict[str, Any]:
    """Return the fields of a ``sample`` event; positions are in bytes. Any thread."""
    publications = (_publication(p, driver, shared, now_ns) for p in snapshot.publications)
    images = (_image(image, driver) for image in snapshot.images if not image.released)
    return {
        "publications": [row for row in publications if row],
        "images": [row for row in images if row],
        "counters": {name: cnc.counter(number) for name, number in COUNTERS.items()},
    }


def _publication(
    publication: PublicationSnapshot, driver: Driver, shared: Shared, now_ns: int
) -> dict[str, Any]:
    """Return the fields of a publication; none if it has ended."""
    try:
        live = driver.publication_status(publication.id)
    except KeyError:
        return {}
    pressure = shared.read_pressure(publication.slot)
    blocked_ns = sum(pressure.blocked_ns)
    if pressure.cause != Cause.NONE:
        blocked_ns += max(0, now_ns - pressure.since_ns)
    return {
        "publication_id": publication.id,
        "stream_id": publication.stream_id,
        "session_id": publication.session_id,
        "position": live.producer_position,
        "consumed": live.consumer_position,
        "limit": live.publisher_limit,
        "connected": live.is_connected,
        "blocked_ns": blocked_ns,
        "cause": pressure.cause,
    }


def _image(image: ImageSnapshot, driver: Driver) -> dict[str, Any]:
    """Return the fields of an image; none if it has ended."""
    try:
        live = driver.image_status(image.id)
    except KeyError:
        return {}
    return {
        "image_id": image.id,
        "stream_id": image.stream_id,
        "session_id": image.session_id,
        "position": live.position,
        "high_water": live.high_water,
        "slowest_subscriber": live.slowest_subscriber,
        "gaps": live.gaps,
        "lost_bytes": image.lost_bytes,
    }
