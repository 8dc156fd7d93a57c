# SPDX-License-Identifier: Apache-2.0
"""The two accounts of a publication, decoded from shared memory (``ps_pressure_view.h``).

The first account states how long the publication was blocked, by cause and by culprit. The second
account counts refused offers by cause.
"""

from __future__ import annotations

import functools
import itertools
import operator
import socket
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import attrs

from penstock.core.stream_types import Cause, Watermark

#: Names of the causes, by number.
NAMES: Final = {int(cause): cause.name.lower() for cause in Cause}
#: Names of the states of watermarks, by number.
WATERMARKS: Final = {int(state): state.name.lower() for state in Watermark}
_IN_ORDER: Final = tuple(NAMES.get(number, f"cause_{number}") for number in range(32))
OTHER: Final = "other"
"""All culprits that are unknown."""


def _not_zero(by_cause: Sequence[int]) -> dict[str, int]:
    names = itertools.compress(_IN_ORDER, by_cause)
    return dict(zip(names, filter(None, by_cause), strict=False))


def cause_name(number: int) -> str:
    """Return the name of a cause; ``none`` for 0."""
    return NAMES.get(number) or f"cause_{number}"       # the text is seldom needed


class Party(NamedTuple):
    """A culprit that blocks a publication: a receiver with its address, or a client of this
    host."""

    id: int                             # 0 unknown
    blocked_ns: int = 0
    error_ns: int = 0
    pid: int = 0                        # of a client on this host
    name: str = ""                      # of a client on this host
    address: str = ""                   # of a receiver

    text: str = ""                      # of it for people; "" unknown


#: Of culprits, without a line of Python for each.
_TEXT_AND_TIME: Final = operator.itemgetter(6, 1)
_TEXT_AND_ERROR: Final = operator.itemgetter(6, 2)
_ERROR: Final = operator.itemgetter(2)


class Levels(NamedTuple):
    """The fill level of a publication's log, and the number and duration of its episodes of
    pressure. An episode begins at the configured depth and ends at the low watermark."""

    depth_bytes: int                    # that publishers are ahead
    peak_bytes: int                     # the most of it
    pressed_since_ns: int               # CLOCK_MONOTONIC: the depth was reached; 0: drained since
    pressed_ns: int                     # from reached depths to drained logs
    pressed_episodes: int               # with the present one
    drained_messages: int               # in ended episodes
    watermark: int                      # Watermark


class Scheduling(NamedTuple):
    """Delays of a publication by the sender's scheduler and by the governor: their number and
    duration."""

    throttled: int = 0                  # offers answered THROTTLED
    retry_after_ns: int = 0             # 0: no publisher is throttled now
    deferrals: int = 0                  # times that data that could leave was withheld
    waits: int = 0                      # turns before which it waited with other streams
    waited_ns: int = 0                  # total time of these waits


class Recent(NamedTuple):
    """The offers through one publication handle that were refused since its last accepted offer,
    and the process id of the client that is farthest behind."""

    refused_since_ns: int = 0           # CLOCK_MONOTONIC; 0: the last offer was accepted
    cause: int = 0                      # Cause of it; 0: the sender has not stated one yet
    reason_pid: int = 0                 # of the lagging client of a receiver on this daemon


def _party_text(number: int, pid: int, name: str, address: str) -> str:
    if not number:
        return ""
    if address:
        return f"receiver {number} at {address}"
    if pid or name:
        quoted = f" '{name}'" if name else ""
        process = f" (pid {pid})" if pid > 0 else ""
        return f"client {number}{quoted}{process}"
    return f"id {number}"


@attrs.define(kw_only=True)
class PressureView:
    """A consistent copy of the two accounts of a publication. The class is not frozen: each read of
    the accounts creates an object, and an object of a frozen class takes longer to create."""

    cause: int                          # Cause that binds now
    stale: bool  # the last consistent copy, because the sender wrote during each try
    since_ns: int                       # CLOCK_MONOTONIC
    culprit: Party
    reason: int                         # Cause that this receiver states as its own
    reason_client: int
    reason_name: str
    reason_host: str
    backlog_bytes: int                  # as stated; 0 unknown
    counter_id: int                     # position of the slowest reader on this host; -1 none
    blocked_ns: tuple[int, ...]         # closed intervals, by Cause
    #: The culprits, or the memory from which ``culprits`` decodes them on demand.
    _entries: tuple[Party, ...] | bytes = attrs.field(eq=lambda entries: _parties(entries))
    refused: dict[str, int]             # offers, by cause; shared with other copies
    refused_ns: int
    refused_episodes: int
    rate_bytes_per_s: int
    published_ordinal: int
    sent_ordinal: int
    dropped_messages: int               # by the publication's policy
    dropped_bytes: int
    levels: bytes  # Levels, Recent and Scheduling; decoded on demand, because each field costs time
    strategy: str

    @property
    def culprits(self) -> tuple[Party, ...]:
        """Return the culprits with the longest times; the last entry has the total time of all
        unknown culprits."""
        self._entries = _parties(self._entries)
        return self._entries

    @property
    def culprit_text(self) -> str:
        """Return the culprit as text. If the culprit is a receiver, the text also names its slowest
        client."""
        text = self.culprit.text
        if text and self.reason_client:
            text += f": client {self.reason_client}"
            text += f" '{self.reason_name}'" if self.reason_name else ""
            text += f" (pid {pid})" if (pid := self._reason_pid()) > 0 else ""
            text += f" on {self.reason_host}" if self.reason_host else ""
        return text

    @property
    def client(self) -> tuple[int, str]:
        """Return the id and the name of the client that blocks the publication: a client of this
        host, or the slowest client of the receiver that is the culprit."""
        if self.culprit.address:
            return self.reason_client, self.reason_name
        return (self.culprit.id, self.culprit.name) if self.culprit.pid else (0, "")

    @property
    def pid(self) -> int:
        """Return the process id of the client that blocks the publication, if it is a client of
        this daemon; otherwise 0."""
        return self._reason_pid() if self.culprit.address else self.culprit.pid

    def _reason_pid(self) -> int:
        pid: int = _REASON_PID.unpack_from(self.levels, _REASON_PID_AT)[0]
        return pid

    def recent(self) -> Recent:
        """Return the offers that were refused since the last accepted offer."""
        return Recent(*_RECENT.unpack_from(self.levels, _LEVELS.size + _SCHEDULING.size))

    def past(self) -> PressureView:
        """Return a copy of this view whose cause is the cause of the latest refused offers. If the
        account contains exactly one known culprit, the copy names this culprit."""
        known = [party for party in self.culprits if party.id]
        return attrs.evolve(
            self, cause=self.recent().cause, since_ns=_NEVER_NS,
            culprit=known[0] if len(known) == 1 else _NOBODY,
        )

    def away(self, since_ns: int) -> PressureView:
        """Return a copy of the view for a time without a daemon: the cause is DAEMON_AWAY since
        ``since_ns``. No sender runs that could complete the account, so the method adds the time up
        to ``since_ns`` to the total of the previous cause."""
        if self.cause == Cause.DAEMON_AWAY:
            return self
        held_ns = self.held_ns(since_ns)
        blocked = list(self.blocked_ns)
        culprits = {party.id: party for party in self.culprits}
        if held_ns:
            blocked[self.cause] += held_ns
            party = culprits.get(self.culprit.id, self.culprit._replace(blocked_ns=0, error_ns=0))
            culprits[party.id] = party._replace(blocked_ns=party.blocked_ns + held_ns)
        return attrs.evolve(
            self, cause=int(Cause.DAEMON_AWAY), since_ns=since_ns, culprit=_NOBODY, reason=0,
            reason_client=0, reason_name="", reason_host="", backlog_bytes=0,
            blocked_ns=tuple(blocked), entries=tuple(culprits.values()),
        )

    def held_ns(self, now_ns: int) -> int:
        """Return how long the present cause and the present culprit have blocked the
        publication."""
        return max(0, now_ns - self.since_ns) if self.cause else 0

    def levels_at(self, now_ns: int) -> Levels:
        """Return the number of unsent bytes, the watermark state and the times of pressure, up to
        ``now_ns``."""
        depth, peak, since_ns, pressed_ns, episodes, drained, watermark = _LEVELS.unpack_from(
            self.levels
        )
        running = max(0, now_ns - since_ns) if since_ns else 0
        return Levels(depth, peak, since_ns, pressed_ns + running, episodes, drained, watermark)

    def scheduled(self) -> Scheduling:
        """Return how often, and for how long, the sender's scheduler and the governor delayed the
        publication."""
        return Scheduling(*_SCHEDULING.unpack_from(self.levels, _LEVELS.size))

    def by_cause(self, now_ns: int) -> dict[str, int]:
        """Return the blocked time by cause, up to ``now_ns``."""
        found = _not_zero(self.blocked_ns)
        if running := self.held_ns(now_ns):
            name = cause_name(self.cause)
            found[name] = found.get(name, 0) + running
        return found

    def by_culprit(self, now_ns: int) -> dict[str, int]:
        """Return the blocked time by culprit, up to ``now_ns``. The sum equals the sum of the times
        by cause."""
        found: dict[str, int] = dict(map(_TEXT_AND_TIME, self.culprits))
        if "" in found:
            found[OTHER] = found.pop("")
        if running := self.held_ns(now_ns):
            name = self.culprit.text or OTHER
            found[name] = found.get(name, 0) + running
        return found

    def dropped_by(self) -> dict[str, int]:
        """Return the number of dropped messages by reason."""
        storage, rate = _REASONS.unpack_from(self.levels, _REASONS_AT)
        full = max(0, self.dropped_messages - storage - rate)
        found = {"log_full": full, "storage": storage, "rate": rate}
        return {reason: count for reason, count in found.items() if count}

    def errors(self) -> dict[str, int]:
        """Return the largest possible error of each culprit's blocked time; culprits whose time is
        exact are omitted."""
        return dict(map(_TEXT_AND_ERROR, filter(_ERROR, self.culprits)))

    def refusals(self) -> dict[str, int]:
        """Return the number of refused offers by cause. The sender states the cause of a refusal
        later. If the next offer is accepted before that, the refusal counts under ``none``."""
        return dict(self.refused)


_NOBODY: Final = Party(id=0)
_NEVER_NS: Final = 2**63 - 1

#: Before the first copy.
NO_PRESSURE: Final = PressureView(
    cause=0, stale=True, since_ns=0, culprit=_NOBODY, reason=0, reason_client=0,
    reason_name="", reason_host="", backlog_bytes=0, counter_id=-1, blocked_ns=(), entries=(),
    refused={}, refused_ns=0, refused_episodes=0, rate_bytes_per_s=0, published_ordinal=0,
    sent_ordinal=0, dropped_messages=0, dropped_bytes=0, levels=bytes(136), strategy="",
)


# ---- decoding --------------------------------------------------------------------------------
#
# Field by field through cffi a full account takes 20 us, so its memory is unpacked at once.

_CAUSES: Final = 32
_IDENTITY: Final = struct.Struct("=q16sIHH96s")
_TIMES: Final = struct.Struct(f"=qqq{_IDENTITY.size}s")
_PARTY: Final = _TIMES
_CULPRITS: Final = 9
_ENTRIES: Final = struct.Struct("=" + f"{_PARTY.size}s" * _CULPRITS)
_HEAD: Final = struct.Struct(f"=iiq{_PARTY.size}sIiqq33s33s6x{_CAUSES}q")
_HEAD_FIELDS: Final = 10                # before the times by cause
_FIGURES: Final = struct.Struct(f"={_CAUSES}q")
_LEVELS: Final = struct.Struct("=7q")
_SCHEDULING: Final = struct.Struct("=5q")
_RECENT: Final = struct.Struct("=3q")
#: The last field of it alone: each status reads it.
_REASON_PID: Final = struct.Struct("=q")
_REASON_PID_AT: Final = _LEVELS.size + _SCHEDULING.size + 16
#: Messages dropped because memory was missing, and because of the rate.
_REASONS: Final = struct.Struct("=2q")
_REASONS_AT: Final = _LEVELS.size + _SCHEDULING.size + _RECENT.size
_STATES: Final = _REASONS_AT + _REASONS.size
_TAIL: Final = struct.Struct(f"={8 * _CAUSES}s7q{_STATES}s64s")
_TAIL_OFFSET: Final = _HEAD.size + _ENTRIES.size


def check_layout(ffi: Any) -> None:
    """Check that this module unpacks ``ps_pressure_view_t`` with the layout that the C core uses.

    :raises AssertionError: the layouts differ, because only one of them was changed.
    """
    view, party = "ps_pressure_view_t", "ps_pressure_party_t"
    found = [ffi.sizeof(view), ffi.sizeof(party)]
    found += [ffi.offsetof(view, name) for name in ("culprit", "reason", "reason_host")]
    found += [ffi.offsetof(view, name) for name in ("blocked_ns", "culprits", "refused")]
    found += [ffi.offsetof(party, name) for name in ("ip", "scope_id", "family", "name")]
    expected = [_TAIL_OFFSET + _TAIL.size, _PARTY.size]
    expected += [16, 16 + _PARTY.size, 16 + _PARTY.size + 24 + 33]
    expected += [_HEAD.size - 8 * _CAUSES, _HEAD.size, _TAIL_OFFSET, 32, 48, 54, 56]
    assert found == expected, f"ps_pressure_view_t is laid out as {found}, not {expected}"


def decode(ffi: Any, native: Any) -> PressureView:
    """Return a ``ps_pressure_view_t`` as values."""
    memory = ffi.buffer(native)[:]
    head = _HEAD.unpack_from(memory)
    (
        cause, stale, since_ns, culprit, reason, counter_id, reason_client, backlog_bytes,
        reason_name, reason_host,
    ) = head[:_HEAD_FIELDS]
    (
        refused, refused_ns, episodes, rate, published, sent, dropped, dropped_bytes,
        levels, strategy,
    ) = _TAIL.unpack_from(memory, _TAIL_OFFSET)
    return PressureView(
        cause=cause, stale=stale != 0, since_ns=since_ns,
        culprit=_party(culprit) or _NOBODY,
        reason=reason, reason_client=reason_client, reason_name=_text(reason_name),
        reason_host=_text(reason_host), backlog_bytes=backlog_bytes, counter_id=counter_id,
        blocked_ns=head[_HEAD_FIELDS:], entries=memory[_HEAD.size:_TAIL_OFFSET],
        refused=_refused(refused), refused_ns=refused_ns, refused_episodes=episodes,
        rate_bytes_per_s=rate, published_ordinal=published, sent_ordinal=sent,
        dropped_messages=dropped, dropped_bytes=dropped_bytes, levels=levels,
        strategy=_text(strategy),
    )


@functools.lru_cache(maxsize=1024)
def _refused(field: bytes) -> dict[str, int]:
    return _not_zero(_FIGURES.unpack(field))


@functools.lru_cache(maxsize=1024)
def _text(field: bytes) -> str:
    """Return a text.  Most are the same as at the look before."""
    return field.partition(b"\0")[0].decode("utf-8", "replace") if field[0] else ""


def _parties(entries: tuple[Party, ...] | bytes) -> tuple[Party, ...]:
    if isinstance(entries, bytes):
        return tuple(filter(None, map(_party, _ENTRIES.unpack(entries))))
    return entries


@functools.lru_cache(maxsize=4096)
def _party(entry: bytes) -> Party | None:
    """Return a party, None if there is none.  Most entries are the same as at the look before."""
    number, blocked_ns, error_ns, identity = _TIMES.unpack(entry)
    if not number:
        return Party(id=0, blocked_ns=blocked_ns) if blocked_ns else None
    return Party(number, blocked_ns, error_ns, *_identity(number, identity))


@functools.lru_cache(maxsize=4096)
def _identity(number: int, field: bytes) -> tuple[int, str, str, str]:
    """Return pid, name, address and text of a party: its times change, these do not."""
    pid, address, scope_id, port, family, name_field = _IDENTITY.unpack(field)
    name, where = _text(name_field), _address(address, scope_id, port, family)
    return pid, name, where, _party_text(number, pid, name, where)


def _address(address: bytes, scope_id: int, port: int, family: int) -> str:
    if family == 4:
        return f"{socket.inet_ntop(socket.AF_INET, address[:4])}:{port}"
    if family == 6:
        host = socket.inet_ntop(socket.AF_INET6, address)
        scope = f"%{scope_id}" if scope_id else ""
        return f"[{host}{scope}]:{port}"
    return ""


# ---- the scheduler ---------------------------------------------------------------------------

#: Lists of waiting streams, in the order of ``ps_band``.
BANDS: Final = ("background", "b0", "b1", "b2", "b3", "b4", "retransmits")
_SAMPLE: Final = struct.Struct("=19q")


@attrs.frozen(kw_only=True)
class SchedulerView:
    """The last sample of the governor. The pressure, and the signals from which it is computed, are
    numbers from 0 to 1."""

    sampled_ns: int                     # CLOCK_MONOTONIC; 0: it has taken no sample
    pressure: float
    signals: dict[str, float]           # depth, latency, busy
    coalesce_ns: int
    status_interval_ns: int
    retry_after_ns: int
    defers: bool
    ready: dict[str, int]               # waiting streams by band
    waits: int
    waited_ns: int
    deferrals: int


def scheduler_view(ffi: Any, native: Any) -> SchedulerView:
    """Return a ``ps_scheduler_view_t`` as values."""
    fields = _SAMPLE.unpack(ffi.buffer(native))
    sampled, pressure, depth, latency, busy, coalesce, interval, retry, defers = fields[:9]
    waits, waited, deferrals = fields[16:]
    return SchedulerView(
        sampled_ns=sampled, pressure=pressure / 1e6,
        signals={"depth": depth / 1e6, "latency": latency / 1e6, "busy": busy / 1e6},
        coalesce_ns=coalesce, status_interval_ns=interval, retry_after_ns=retry,
        defers=bool(defers), ready=dict(zip(BANDS, fields[9:16], strict=True)),
        waits=waits, waited_ns=waited, deferrals=deferrals,
    )


#: Before the first sample.
NO_SAMPLE: Final = SchedulerView(
    sampled_ns=0, pressure=0.0, signals=dict.fromkeys(("depth", "latency", "busy"), 0.0),
    coalesce_ns=0, status_interval_ns=0, retry_after_ns=0, defers=False,
    ready=dict.fromkeys(BANDS, 0), waits=0, waited_ns=0, deferrals=0,
)
