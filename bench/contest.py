# SPDX-License-Identifier: Apache-2.0
"""Who is measured at what, and what the issue asks of the ratios."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any, Final

import attrs

from bench import contenders
from penstock._bench.runner import Settings

Result = dict[str, Any]
Runner = Callable[[Settings], Result]


@attrs.frozen(kw_only=True)
class Entry:
    """One contender at one work."""

    key: str
    title: str
    run: Runner
    veth: bool = True
    """Whether it has a network to be measured over."""


@attrs.frozen(kw_only=True)
class Row:
    """One comparison: ours over the better of the peers, for one number of the results."""

    title: str
    ours: str
    peers: tuple[str, ...] = ()
    metric: str = "msgs_per_s"
    goal: float
    at_least: bool = True
    """The goal is a floor (rates) or a ceiling (times, costs)."""
    aim: bool = False
    """Wished for, not required."""

    def ratio(self, results: dict[str, list[Result]]) -> float | None:
        """Of the medians; the number itself when there is no peer.  None when one is missing."""
        ours = middle(results.get(self.ours, []), self.metric)
        others = [middle(results.get(peer, []), self.metric) for peer in self.peers]
        if ours is None or any(value is None for value in others):
            return None
        known = [value for value in others if value]
        if not known:
            return ours
        return ours / (max(known) if self.at_least else min(known))

    def reached(self, ratio: float) -> bool:
        return ratio >= self.goal if self.at_least else ratio <= self.goal


def middle(results: list[Result], metric: str) -> float | None:
    """The median of a number over the rounds that have it."""
    values = [result[metric] for result in results if result.get(metric) is not None]
    return float(median(values)) if values else None


def _entry(key: str, title: str, function: Callable[..., Result], what: str, *,
           veth: bool = True, **changes: Any) -> Entry:
    def run(settings: Settings) -> Result:
        return function(what, attrs.evolve(settings, **changes))

    return Entry(key=key, title=title, run=run, veth=veth)


def _native(size: int) -> list[Entry]:
    made = []
    for threading in ("SHARED", "DEDICATED"):
        options: dict[str, Any] = {"size": size, "threading": threading}
        for name, function in (("penstock", contenders.penstock), ("aeron", contenders.aeron)):
            title = "Aeron, Java" if name == "aeron" else "penstock"
            made.append(
                _entry(f"udp{size}.{name}.{threading}", f"UDP {size} B, {title}, {threading}",
                       function, "udp", **options)
            )
    return made


_PYTHON: Final[dict[str, Any]] = {"client": "python", "size": 32}
ENTRIES: Final = (
    *_native(1344),
    _entry("udp1344.mmsg", "UDP 1344 B, sendmmsg/recvmmsg", contenders.plain, "mmsg", size=1344),
    _entry("udp1344.gso", "UDP 1344 B, GSO/GRO", contenders.plain, "gso", size=1344),
    *_native(32),
    _entry("python.penstock", "UDP 32 B, Python, penstock", contenders.penstock, "udp", **_PYTHON),
    _entry("python.zeromq", "32 B, Python, pyzmq (TCP)", contenders.zeromq, "udp", **_PYTHON),
    _entry("python.zenoh", "32 B, Python, Zenoh (TCP)", contenders.zenoh, "udp", **_PYTHON),
    _entry("batch.penstock", "UDP 32 B, Python batches, penstock", contenders.penstock, "udp",
           client="batch", size=32),
    _entry("batch.zeromq", "32 B, pyzmq multipart of 256 (TCP)", contenders.zeromq, "udp",
           client="batch", size=32),
    _entry("rtt.penstock", "Round trip 32 B, Python, penstock", contenders.penstock, "rtt",
           **_PYTHON),
    _entry("rtt.native", "Round trip 32 B, native, penstock", contenders.penstock, "rtt",
           client="native", size=32),
    _entry("rtt.zeromq", "Round trip 32 B, pyzmq (TCP)", contenders.zeromq, "rtt", **_PYTHON),
    _entry("rtt.zenoh", "Round trip 32 B, Zenoh (TCP)", contenders.zenoh, "rtt", **_PYTHON),
    _entry("rtt.aeron", "Round trip 32 B, Aeron, Java", contenders.aeron, "rtt", size=32),
    _entry("ipc.penstock", "IPC 32 B, penstock", contenders.penstock, "ipc", size=32, veth=False),
    _entry("ipc.aeron", "IPC 32 B, Aeron, Java", contenders.aeron, "ipc", size=32, veth=False),
    _entry("streams", "1000 open, 10 busy, penstock", contenders.penstock, "streams", size=32,
           veth=False),
    _entry("idle.penstock", "Idle, 100 streams, penstock", contenders.penstock, "idle",
           veth=False),
    _entry("idle.aeron", "Idle, 100 streams, Aeron as for round trips", contenders.aeron, "idle",
           veth=False),
)


def _native_rows() -> list[Row]:
    made = []
    for threading in ("SHARED", "DEDICATED"):
        ours = f"udp1344.penstock.{threading}"
        made += [
            Row(title=f"UDP 1344 B, native, {threading}: Aeron", ours=ours,
                peers=(f"udp1344.aeron.{threading}",), goal=4.0),
            Row(title=f"UDP 1344 B, native, {threading}: sendmmsg", ours=ours,
                peers=("udp1344.mmsg",), goal=2.5),
            Row(title=f"UDP 1344 B, native, {threading}: GSO/GRO", ours=ours,
                peers=("udp1344.gso",), goal=0.5, aim=True),
        ]
    made += [
        Row(title=f"UDP 32 B, native, {threading}: Aeron", ours=f"udp32.penstock.{threading}",
            peers=(f"udp32.aeron.{threading}",), goal=2.0)
        for threading in ("SHARED", "DEDICATED")
    ]
    return made


_SINGLE: Final = ("python.zeromq", "python.zenoh")
ROWS: Final = (
    *_native_rows(),
    Row(title="UDP 32 B, Python, one a call: better of pyzmq, Zenoh", ours="python.penstock",
        peers=_SINGLE, goal=2.5),
    Row(title="UDP 32 B, Python batches: the same", ours="batch.penstock", peers=_SINGLE,
        goal=20.0),
    Row(title="Python ping-pong p50: pyzmq", ours="rtt.penstock", peers=("rtt.zeromq",),
        metric="p50_us", goal=0.3, at_least=False),
    Row(title="Python ping-pong p99: pyzmq", ours="rtt.penstock", peers=("rtt.zeromq",),
        metric="p99_us", goal=0.3, at_least=False),
    Row(title="Python ping-pong p50: Aeron, Java", ours="rtt.penstock", peers=("rtt.aeron",),
        metric="p50_us", goal=1.5, at_least=False),
    Row(title="Python ping-pong p99: Aeron, Java", ours="rtt.penstock", peers=("rtt.aeron",),
        metric="p99_us", goal=1.5, at_least=False),
    Row(title="IPC 32 B, native: Aeron", ours="ipc.penstock", peers=("ipc.aeron",), goal=1.0),
    Row(title="1000 open, 10 busy: CPU a message over 10 open", ours="streams",
        metric="cpu_ratio", goal=1.1, at_least=False),
    Row(title="Idle daemon, 100 connected streams: cores", ours="idle.penstock",
        metric="worst_daemon_core", goal=0.01, at_least=False),
)
