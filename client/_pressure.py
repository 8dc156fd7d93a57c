# SPDX-License-Identifier: Apache-2.0
"""Why a publication is held, and by whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Pressure:
    """Cause that holds a publication back, and the time that it was held.

    The two accounts have equal sums: the time that publishers stood at their limit.
    """

    cause: str
    """What binds now, ``none`` when nothing does: ``receiver_window``, ``nak_rate``, ..."""
    culprit: str
    """Through whose fault: a receiver with its address or a local client; empty when unknown."""
    reason: str
    """Why that receiver holds the stream, in its own words; empty when it did not say."""
    reason_client: int
    """The client beyond that receiver which is behind; 0 when it did not say."""
    backlog_bytes: int
    """What that client has not read yet."""
    strategy: str
    """Flow control of the stream."""
    rate_bytes_per_s: int
    """Rate that the stream is held to; 0: none."""
    blocked_ns: Mapping[str, int]
    """Time held, by cause."""
    blocked_by_ns: Mapping[str, int]
    """Time held, by culprit; the smallest are one entry, ``other``."""

    @property
    def total_ns(self) -> int:
        """Time held."""
        return sum(self.blocked_ns.values())


def read_pressure(snapshot: Mapping[str, Any], publication_id: int) -> Pressure | None:
    """The publication's part of a status snapshot; None when it has gone."""
    for row in snapshot["publications"]:
        if row["publication_id"] == publication_id:
            return _read(row)
    return None


def _read(row: Mapping[str, Any]) -> Pressure:
    culprit = row["culprit"]
    peer: Mapping[str, Any] = next(
        (p for p in row["peers"] if culprit.startswith(f"receiver {p['receiver_id']} ")), {}
    )
    return Pressure(
        cause=row["cause"],
        culprit=culprit,
        reason=peer.get("reason", ""),
        reason_client=peer.get("reason_client", 0),
        backlog_bytes=peer.get("backlog_bytes", 0),
        strategy=row["strategy"],
        rate_bytes_per_s=row["rate_bytes_per_s"],
        blocked_ns=dict(row["blocked_ns"]),
        blocked_by_ns=dict(row["blocked_by_ns"]),
    )
