# SPDX-License-Identifier: Apache-2.0
"""Report how long each cause and each culprit blocked a publication, and how many offers were
refused."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from penstock.client._offer import Offer
from penstock.client._parking import Parking
from penstock.core.pressure import (
    NO_PRESSURE,
    WATERMARKS,
    PressureView,
    cause_name,
)

_CHECK_NS: Final = 100_000_000          # the longest wait for the sender's check
_LOOK_S: Final = 50e-6


@attrs.frozen(kw_only=True, slots=False)     # made in a third of the time that slots take
class Pressure:
    """The cause that blocks a publication now, how long each cause has blocked it so far, and how
    many offers were refused. The values of a :class:`Pressure` are read from shared memory.

    ``blocked_ns`` states for each cause, and ``blocked_by_ns`` for each culprit, how long
    publishers had no room to publish. The sum of the times of all causes equals the sum of the
    times of all culprits. ``refused`` counts refused offers.
    """

    cause: str
    """The cause that blocks publishers now, such as ``receiver_window``; ``none`` if they can
    publish."""
    culprit: str
    """The culprit: a receiver with its address, or a client of this host; empty if it is
    unknown."""
    reason: str
    """The reason that the receiver stated for blocking the stream; empty if it stated none."""
    reason_client: int
    """The client beyond that receiver which is behind; 0 when it did not say."""
    backlog_bytes: int
    """What the client that is behind has not read yet, here or beyond that receiver."""
    strategy: str
    """Flow control of the stream."""
    rate_bytes_per_s: int
    """Rate that the stream is held to; 0: none."""

    client: str = ""
    """Name of the client that is behind, here or beyond the receiver; empty when unknown."""
    host: str = ""
    """Name of the receiver's host; empty for a client of this daemon, and when unknown."""
    pid: int = 0
    """Process id of the client that is behind, if it is a client of this daemon; else 0."""
    held_ns: int = 0
    """How long that cause and culprit have held the publication by now."""
    refused: Mapping[str, int] = attrs.field(factory=dict)
    """Offers refused, by the cause that bound then; ``none``: room came before it was known."""
    refused_ns: int = 0
    """Time from a publisher's first refusal to its next success, of all its episodes."""
    refused_episodes: int = 0
    """Number of these episodes that ended."""
    dropped_messages: int = 0
    """Messages that the log's policy dropped, by all publishers of the stream."""
    dropped_bytes: int = 0
    """Their payloads."""
    stale: bool = False
    """The daemon wrote during each try to read: these are the figures of the call before."""
    _now_ns: int = attrs.field(default=0, repr=False, eq=False)
    _view: PressureView = attrs.field(default=NO_PRESSURE, repr=False)

    @functools.cached_property
    def blocked_ns(self) -> Mapping[str, int]:
        """Time held, by cause."""
        return self._view.by_cause(self._now_ns)

    @functools.cached_property
    def blocked_by_ns(self) -> Mapping[str, int]:
        """Time for which each culprit blocked publishers: the eight culprits with the longest
        times, and ``other``, the total time of all unknown culprits."""
        return self._view.by_culprit(self._now_ns)

    @functools.cached_property
    def error_ns(self) -> Mapping[str, int]:
        """The largest possible error of each culprit's time in ``blocked_by_ns``: at most an eighth
        of the total time. If there were at most eight culprits, there is no error."""
        return self._view.errors()

    @property
    def dropped_by(self) -> Mapping[str, int]:
        """Number of dropped messages for each reason: ``log_full`` (the log had no room),
        ``storage`` (shared memory had no room) and ``rate`` (the rate limit was exceeded)."""
        return self._view.dropped_by()

    @property
    def depth_bytes(self) -> int:
        """Bytes that publishers have written and the sender has not sent yet; on IPC, bytes that
        the slowest reader has not consumed."""
        return self._view.levels_at(self._now_ns).depth_bytes

    @property
    def peak_bytes(self) -> int:
        """Largest value of :attr:`depth_bytes` since the stream began."""
        return self._view.levels_at(self._now_ns).peak_bytes

    @property
    def watermark(self) -> str:
        """The watermark state. ``high``: publishers have just reached the configured depth of the
        log. ``paused``: publishers are still blocked. ``low``: the log has drained to the low
        watermark, but no publisher has continued yet. Otherwise ``normal``."""
        return WATERMARKS.get(self._view.levels_at(self._now_ns).watermark, "normal")

    @property
    def pressed_ns(self) -> int:
        """Total duration of all episodes of pressure, in nanoseconds. Each episode of pressure
        begins when publishers reach the configured depth of the log, and ends when the log has
        drained to the low watermark."""
        return self._view.levels_at(self._now_ns).pressed_ns

    @property
    def pressed_episodes(self) -> int:
        """Number of episodes of pressure so far, including the present episode, if there is one."""
        return self._view.levels_at(self._now_ns).pressed_episodes

    @property
    def drained_messages(self) -> int:
        """Number of messages that were sent (on IPC: read) during episodes of pressure. On IPC this
        property is 0 unless the stream has a back-pressure policy."""
        return self._view.levels_at(self._now_ns).drained_messages

    @property
    def throttled(self) -> int:
        """Number of offers that returned ``THROTTLED``."""
        return self._view.scheduled().throttled

    @property
    def retry_after_s(self) -> float:
        """Time in seconds after which a throttled publisher may try again; 0: the governor
        throttles no publisher of this stream."""
        return self._view.scheduled().retry_after_ns / 1e9

    @property
    def deferrals(self) -> int:
        """Number of times that the daemon's governor (``docs/scheduling.md``) delayed data,
        although the sender could have sent this data."""
        return self._view.scheduled().deferrals

    @property
    def waits(self) -> int:
        """Number of times that the stream had data to send and had to wait for its turn among the
        sender's streams."""
        return self._view.scheduled().waits

    @property
    def waited_ns(self) -> int:
        """Total time for which the stream waited for its turn (see :attr:`waits`)."""
        return self._view.scheduled().waited_ns

    @property
    def summary(self) -> str:
        """A text for people: the cause, duration, culprit and backlog of the present blockage. If
        nothing blocks the publication, the text is "held by nothing"."""
        if self.cause == "none":
            return "held by nothing"
        by = f" by {self.culprit}" if self.culprit else ""
        behind = f", {_bytes(self.backlog_bytes)} behind" if self.backlog_bytes else ""
        return f"{self.cause}: held {self.held_ns / 1e9:.1f} s{by}{behind}"

    @property
    def total_ns(self) -> int:
        """Total time held."""
        return sum(self.blocked_ns.values())


def _bytes(number: int) -> str:
    """Return bytes as readable text, such as 32 KiB."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{number / size:.3g} {unit}" if number % size else f"{number // size} {unit}"
    return f"{number} bytes"


def pressure_of(view: PressureView, now_ns: int) -> Pressure:
    """Convert ``view`` (values read from shared memory) to a :class:`Pressure` at the time
    ``now_ns`` of the monotonic clock."""
    return Pressure(
        cause=cause_name(view.cause),
        culprit=view.culprit_text,
        reason=cause_name(view.reason) if view.reason else "",
        reason_client=view.reason_client,
        backlog_bytes=view.backlog_bytes,
        client=view.client[1],
        host=view.reason_host,
        pid=view.pid,
        held_ns=view.held_ns(now_ns),
        strategy=view.strategy,
        rate_bytes_per_s=view.rate_bytes_per_s,
        refused=view.refusals(),
        refused_ns=view.refused_ns,
        refused_episodes=view.refused_episodes,
        dropped_messages=view.dropped_messages,
        dropped_bytes=view.dropped_bytes,
        view=view,
        now_ns=now_ns,
        stale=view.stale,
    )


def after_refusal(
    view: PressureView, read: Callable[[], PressureView], parking: Parking
) -> PressureView:
    """Read from shared memory what blocks a publication, including the cause of its latest refused
    offer. After a refused offer, the sender checks the stream and records the cause of the refusal.
    The function waits until the sender has recorded the cause. If the stream already has room when
    the sender checks it, the function returns the last recorded cause.
    """
    deadline_ns = time.monotonic_ns() + _CHECK_NS
    while view.cause == 0 and (recent := view.recent()).refused_since_ns:
        if recent.cause or time.monotonic_ns() >= deadline_ns:
            return view.past()
        parking.until(lambda: False, _LOOK_S)
        view = read()
    return view


class Rest:
    """The time for which a ``send`` call must wait after its offer returned ``THROTTLED``."""

    def __init__(self, publication: Throttled) -> None:
        self._publication = publication
        self._until_ns = 0

    def note(self, position: int) -> None:
        """Begin the pause if ``position``, the result of an offer, is ``THROTTLED``."""
        if position == Offer.THROTTLED:
            self._until_ns = time.monotonic_ns() + int(self._publication.retry_after_s * 1e9)

    def left_ns(self) -> int:
        """Return the rest of the publisher's pause, in ns; 0 as soon as the daemon's governor
        throttles no publisher of the stream."""
        if self._until_ns == 0 or self._publication.retry_after_s == 0:
            return 0
        return max(0, self._until_ns - time.monotonic_ns())


class Throttled:
    """Base class of publications with :attr:`retry_after_s`, the pause of a throttled publisher."""

    _handle: Any

    @property
    def retry_after_s(self) -> float:
        """Time in seconds after which an offer that returned ``THROTTLED`` may be repeated; 0: the
        governor throttles no publisher of this stream now. ``send`` waits for this time before it
        offers a throttled message again."""
        handle = self._handle
        if handle is None:
            return 0.0
        return int(handle.lib.ps_pub_retry_after_ns(handle.native)) / 1e9
