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
    """What the client that is behind has not read yet, here or beyond that receiver."""
    strategy: str
    """Flow control of the stream."""
    rate_bytes_per_s: int
    """Rate that the stream is held to; 0: none."""
    blocked_ns: Mapping[str, int]
    """Time held, by cause."""
    blocked_by_ns: Mapping[str, int]
    """Time held, by culprit; the smallest are one entry, ``other``."""

    client: str = ""
    """Name of the client that is behind, here or beyond the receiver; empty when unknown."""
    held_ns: int = 0
    """How long that cause and culprit have held the publication by now."""

    @property
    def summary(self) -> str:
        """Return cause, culprit, duration and backlog as one clause; "held by nothing" without."""
        if self.cause == "none":
            return "held by nothing"
        by = f" by {self.culprit}" if self.culprit else ""
        behind = f", {_bytes(self.backlog_bytes)} behind" if self.backlog_bytes else ""
        return f"{self.cause}: held {self.held_ns / 1e9:.1f} s{by}{behind}"

    @property
    def total_ns(self) -> int:
        """Time held."""
        return sum(self.blocked_ns.values())


def _bytes(number: int) -> str:
    """Bytes for people: 32 KiB."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{number / size:.3g} {unit}" if number % size else f"{number // size} {unit}"
    return f"{number} bytes"


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
        backlog_bytes=row["backlog_bytes"],
        client=row["culprit_name"],
        held_ns=row["held_ns"],
        strategy=row["strategy"],
        rate_bytes_per_s=row["rate_bytes_per_s"],
        blocked_ns=dict(row["blocked_ns"]),
        blocked_by_ns=dict(row["blocked_by_ns"]),
    )
