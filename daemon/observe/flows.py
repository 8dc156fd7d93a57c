# SPDX-License-Identifier: Apache-2.0
"""Extract the parts of the daemon's status that ``GET /flows``, ``GET /scheduler`` and ``penstock
flows --json`` show."""

from __future__ import annotations

from typing import Any, Final

_STREAM: Final = (
    "publication_id", "channel", "stream_id", "session_id", "position", "limit",
    "consumer_position", "queue_depth_bytes", "queue_peak_bytes", "watermark", "pressure_events",
    "pressure_ns", "drained_messages", "policy", "dropped_messages", "dropped_bytes",
    "dropped_by", "credits_granted", "credits_spent", "cause", "culprit", "culprit_awaited",
    "held_ns", "blocked_ns", "blocked_by_ns", "refused", "warnings",
)


def flows(status: dict[str, Any]) -> dict[str, Any]:
    """Return the streams with the causes and culprits of their back-pressure, the subscriptions
    that grant credits, and the consumer groups."""
    return {
        "credits": [row for row in status["subscriptions"] if row["credits"]],
        "streams": [{key: row[key] for key in _STREAM} for row in status["publications"]],
        "groups": status["groups"],
        "groups_expired": status["groups_expired"],
    }


_TURNS: Final = (
    "publication_id", "channel", "stream_id", "session_id", "cause", "throttled", "deferrals",
    "waits", "waited_ns",
)


def scheduler_of(status: dict[str, Any]) -> dict[str, Any]:
    """Return the last measurement of the governor, and how often the governor delayed or throttled
    each stream."""
    streams = [{key: row[key] for key in _TURNS} for row in status["publications"]]
    return {**status["scheduler"], "streams": streams}
