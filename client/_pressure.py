# SPDX-License-Identifier: Apache-2.0
"""Why a publication is held, by whom, and what was refused meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from penstock.core.pressure import PressureView, cause_name


@attrs.frozen(kw_only=True)
class Pressure:
    """Both accounts of a publication, read from shared memory.

    The account of time held says how long publishers stood at their limit, by cause and by culprit;
    the two sums are equal.  The account of refusals counts offers that were refused.
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
    """Time held, by culprit: the eight largest, and ``other`` for all that are unknown."""

    client: str = ""
    """Name of the client that is behind, here or beyond the receiver; empty when unknown."""
    held_ns: int = 0
    """How long that cause and culprit have held the publication by now."""
    error_ns: Mapping[str, int] = attrs.field(factory=dict)
    """How much too large a culprit's time may be: at most an eighth of all.  Only where more than
    eight culprits took turns."""
    refused: Mapping[str, int] = attrs.field(factory=dict)
    """Offers refused, by the cause that bound then; ``none``: room came before it was known."""
    refused_ns: int = 0
    """Time from a publisher's first refusal to its next success, of all its episodes."""
    refused_episodes: int = 0
    """Number of these episodes that ended."""
    stale: bool = False
    """The daemon wrote during each try to read: these are the figures of the call before."""

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


def pressure_of(view: PressureView, now_ns: int) -> Pressure:
    """The accounts for people, closed at ``now_ns`` of the monotonic clock."""
    return Pressure(
        cause=cause_name(view.cause),
        culprit=view.culprit_text,
        reason=cause_name(view.reason) if view.reason else "",
        reason_client=view.reason_client,
        backlog_bytes=view.backlog_bytes,
        client=view.client[1],
        held_ns=view.held_ns(now_ns),
        strategy=view.strategy,
        rate_bytes_per_s=view.rate_bytes_per_s,
        blocked_ns=view.by_cause(now_ns),
        blocked_by_ns=view.by_culprit(now_ns),
        error_ns=view.errors(),
        refused=view.refusals(),
        refused_ns=view.refused_ns,
        refused_episodes=view.refused_episodes,
        stale=view.stale,
    )
