# SPDX-License-Identifier: Apache-2.0
"""Both accounts of a publication, decoded from shared memory (``ps_pressure_view.h``).

The account of time held says how long publishers stood at their limit, by cause and by culprit. The
account of refusals says how many offers were refused, by the cause that bound at that time.
"""

from __future__ import annotations

import socket
from typing import Any, Final

import attrs

from penstock.core.driver_types import Cause

#: The causes by number, as people read them.
NAMES: Final = {int(cause): cause.name.lower() for cause in Cause}
OTHER: Final = "other"
"""All culprits that are unknown."""


def cause_name(number: int) -> str:
    """Return the cause for people; ``none`` for 0."""
    return NAMES.get(number, f"cause_{number}")


@attrs.frozen(kw_only=True)
class Party:
    """A receiver with its address, or a client of this host."""

    id: int                             # 0 unknown
    blocked_ns: int = 0
    error_ns: int = 0
    pid: int = 0                        # of a client on this host
    name: str = ""                      # of a client on this host
    address: str = ""                   # of a receiver

    @property
    def text(self) -> str:
        """Return the party for people; empty when it is unknown."""
        if not self.id:
            return ""
        if self.address:
            return f"receiver {self.id} at {self.address}"
        if self.pid or self.name:
            name = f" '{self.name}'" if self.name else ""
            pid = f" (pid {self.pid})" if self.pid > 0 else ""
            return f"client {self.id}{name}{pid}"
        return f"id {self.id}"


@attrs.frozen(kw_only=True)
class PressureView:
    """A consistent copy of both accounts."""

    cause: int                          # Cause that binds now
    stale: bool                         # the last good copy: the sender wrote in each try
    since_ns: int                       # CLOCK_MONOTONIC
    culprit: Party
    reason: int                         # Cause that this receiver states for itself
    reason_client: int
    reason_name: str
    reason_host: str
    backlog_bytes: int                  # as stated; 0 unknown
    counter_id: int                     # position of the slowest reader on this host; -1 none
    blocked_ns: tuple[int, ...]         # closed intervals, by Cause
    culprits: tuple[Party, ...]         # the largest; the last: all that are unknown
    refused: tuple[int, ...]            # offers, by Cause
    refused_ns: int
    refused_episodes: int
    rate_bytes_per_s: int
    published_ordinal: int
    sent_ordinal: int
    strategy: str

    @property
    def culprit_text(self) -> str:
        """Return the culprit for people, with the client beyond a receiver that is behind."""
        text = self.culprit.text
        if text and self.reason_client:
            text += f": client {self.reason_client}"
            text += f" '{self.reason_name}'" if self.reason_name else ""
            text += f" on {self.reason_host}" if self.reason_host else ""
        return text

    @property
    def client(self) -> tuple[int, str]:
        """Return id and name of the client that is behind, here or beyond the receiver."""
        if self.culprit.address:
            return self.reason_client, self.reason_name
        return (self.culprit.id, self.culprit.name) if self.culprit.pid else (0, "")

    def held_ns(self, now_ns: int) -> int:
        """Return how long that cause and culprit have held the publication."""
        return max(0, now_ns - self.since_ns) if self.cause else 0

    def by_cause(self, now_ns: int) -> dict[str, int]:
        """Return the time held by cause, closed at ``now_ns``."""
        found = {cause_name(i): held for i, held in enumerate(self.blocked_ns) if held}
        if running := self.held_ns(now_ns):
            name = cause_name(self.cause)
            found[name] = found.get(name, 0) + running
        return found

    def by_culprit(self, now_ns: int) -> dict[str, int]:
        """Return the time held by culprit, closed at ``now_ns``: the sum is that by cause."""
        found: dict[str, int] = {}
        for party in self.culprits:
            if party.blocked_ns:
                name = party.text or OTHER
                found[name] = found.get(name, 0) + party.blocked_ns
        if running := self.held_ns(now_ns):
            name = self.culprit.text or OTHER
            found[name] = found.get(name, 0) + running
        return found

    def errors(self) -> dict[str, int]:
        """Return how much too large a culprit's time may be; those without error are left out."""
        return {party.text: party.error_ns for party in self.culprits if party.error_ns}

    def refusals(self) -> dict[str, int]:
        """Return refused offers by cause; ``none``: accepted again before the sender looked."""
        return {cause_name(i): count for i, count in enumerate(self.refused) if count}


#: Before the first copy.
NO_PRESSURE: Final = PressureView(
    cause=0, stale=True, since_ns=0, culprit=Party(id=0), reason=0, reason_client=0,
    reason_name="", reason_host="", backlog_bytes=0, counter_id=-1, blocked_ns=(), culprits=(),
    refused=(), refused_ns=0, refused_episodes=0, rate_bytes_per_s=0, published_ordinal=0,
    sent_ordinal=0, strategy="",
)


def decode(ffi: Any, native: Any) -> PressureView:
    """Return a ``ps_pressure_view_t`` as values."""
    culprits = [
        _party(ffi, party) for party in native.culprits if party.blocked_ns
    ]
    return PressureView(
        cause=native.cause, stale=native.stale != 0, since_ns=native.since_ns,
        culprit=_party(ffi, native.culprit), reason=native.reason,
        reason_client=native.reason_client, reason_name=_text(ffi, native.reason_name),
        reason_host=_text(ffi, native.reason_host), backlog_bytes=native.backlog_bytes,
        counter_id=native.counter_id, blocked_ns=tuple(native.blocked_ns),
        culprits=tuple(culprits), refused=tuple(native.refused), refused_ns=native.refused_ns,
        refused_episodes=native.refused_episodes, rate_bytes_per_s=native.rate_bytes_per_s,
        published_ordinal=native.published_ordinal, sent_ordinal=native.sent_ordinal,
        strategy=_text(ffi, native.strategy),
    )


def _text(ffi: Any, field: Any) -> str:
    return str(ffi.string(field).decode("utf-8", "replace"))


def _party(ffi: Any, native: Any) -> Party:
    if not native.id:
        return Party(id=0, blocked_ns=native.blocked_ns)
    return Party(
        id=native.id, blocked_ns=native.blocked_ns, error_ns=native.error_ns, pid=native.pid,
        name=_text(ffi, native.name), address=_address(ffi, native),
    )


def _address(ffi: Any, native: Any) -> str:
    if native.family == 4:
        host = socket.inet_ntop(socket.AF_INET, ffi.buffer(native.ip, 4)[:])
        return f"{host}:{native.port}"
    if native.family == 6:
        host = socket.inet_ntop(socket.AF_INET6, ffi.buffer(native.ip, 16)[:])
        scope = f"%{native.scope_id}" if native.scope_id else ""
        return f"[{host}{scope}]:{native.port}"
    return ""
