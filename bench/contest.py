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
                _entry(f"udp{size}.{name}.{threading}",
                       f"Rate over UDP, {size}-byte messages: {title}, threading {threading}",
                       function, "udp", **options)
            )
    return made


_PYTHON: Final[dict[str, Any]] = {"client": "python", "size": 32}
ENTRIES: Final = (
    *_native(1344),
    _entry("udp1344.mmsg", "Rate over UDP, 1344-byte messages: sendmmsg/recvmmsg",
           contenders.plain, "mmsg", size=1344),
    _entry("udp1344.gso", "Rate over UDP, 1344-byte messages: GSO/GRO",
           contenders.plain, "gso", size=1344),
    *_native(32),
    _entry("python.penstock", "Rate over UDP, 32-byte messages: penstock, Python",
           contenders.penstock, "udp", **_PYTHON),
    _entry("python.zeromq", "Rate over TCP, 32-byte messages: pyzmq, Python",
           contenders.zeromq, "udp", **_PYTHON),
    _entry("python.zenoh", "Rate over TCP, 32-byte messages: Zenoh, Python",
           contenders.zenoh, "udp", **_PYTHON),
    _entry("batch.penstock", "Rate over UDP, 32-byte messages: penstock, Python batches",
           contenders.penstock, "udp",
           client="batch", size=32),
    _entry("batch.zeromq", "Rate over TCP, 32-byte messages: pyzmq, multipart messages of 256",
           contenders.zeromq, "udp",
           client="batch", size=32),
    _entry("rtt.penstock", "Round trip of a 32-byte message: penstock, Python",
           contenders.penstock, "rtt",
           **_PYTHON),
    _entry("rtt.native", "Round trip of a 32-byte message: penstock, native",
           contenders.penstock, "rtt",
           client="native", size=32),
    _entry("rtt.zeromq", "Round trip of a 32-byte message: pyzmq over TCP",
           contenders.zeromq, "rtt", **_PYTHON),
    _entry("rtt.zenoh", "Round trip of a 32-byte message: Zenoh over TCP",
           contenders.zenoh, "rtt", **_PYTHON),
    _entry("rtt.aeron", "Round trip of a 32-byte message: Aeron, Java",
           contenders.aeron, "rtt", size=32),
    _entry("ipc.penstock", "Rate over IPC, 32-byte messages: penstock",
           contenders.penstock, "ipc", size=32, veth=False),
    _entry("ipc.aeron", "Rate over IPC, 32-byte messages: Aeron, Java",
           contenders.aeron, "ipc", size=32, veth=False),
    _entry("streams", "CPU time a message, 10 busy of 1000 open streams: penstock",
           contenders.penstock, "streams", size=32,
           veth=False),
    _entry("idle.penstock", "CPU of an idle driver with 100 streams: penstock",
           contenders.penstock, "idle",
           veth=False),
    _entry("idle.aeron", "CPU of an idle driver with 100 streams: Aeron, set up for round trips",
           contenders.aeron, "idle",
           veth=False),
)


def _native_rows() -> list[Row]:
    made = []
    for threading in ("SHARED", "DEDICATED"):
        ours = f"udp1344.penstock.{threading}"
        made += [
            Row(title=f"Rate over UDP, 1344-byte messages, {threading}: penstock ÷ Aeron",
                ours=ours,
                peers=(f"udp1344.aeron.{threading}",), goal=4.0),
            Row(title=f"Rate over UDP, 1344-byte messages, {threading}: penstock ÷ sendmmsg",
                ours=ours,
                peers=("udp1344.mmsg",), goal=2.5),
            Row(title=f"Rate over UDP, 1344-byte messages, {threading}: penstock ÷ GSO/GRO",
                ours=ours,
                peers=("udp1344.gso",), goal=0.5, aim=True),
        ]
    made += [
        Row(title=f"Rate over UDP, 32-byte messages, {threading}: penstock ÷ Aeron",
            ours=f"udp32.penstock.{threading}",
            peers=(f"udp32.aeron.{threading}",), goal=2.0)
        for threading in ("SHARED", "DEDICATED")
    ]
    return made


_SINGLE: Final = ("python.zeromq", "python.zenoh")
ROWS: Final = (
    *_native_rows(),
    Row(
        title="Rate in Python, one 32-byte message a call: penstock ÷ better of pyzmq and Zenoh",
        ours="python.penstock",
        peers=_SINGLE, goal=2.5),
    Row(
        title="Rate in Python, batches of 32-byte messages: penstock ÷ better of pyzmq and Zenoh",
        ours="batch.penstock", peers=_SINGLE,
        goal=20.0),
    Row(title="Round trip in Python, p50: penstock ÷ pyzmq",
        ours="rtt.penstock", peers=("rtt.zeromq",),
        metric="p50_us", goal=0.3, at_least=False),
    Row(title="Round trip in Python, p99: penstock ÷ pyzmq",
        ours="rtt.penstock", peers=("rtt.zeromq",),
        metric="p99_us", goal=0.3, at_least=False),
    Row(title="Round trip, p50: penstock in Python ÷ Aeron in Java",
        ours="rtt.penstock", peers=("rtt.aeron",),
        metric="p50_us", goal=1.5, at_least=False),
    Row(title="Round trip, p99: penstock in Python ÷ Aeron in Java",
        ours="rtt.penstock", peers=("rtt.aeron",),
        metric="p99_us", goal=1.5, at_least=False),
    Row(title="Rate over IPC, 32-byte messages: penstock ÷ Aeron",
        ours="ipc.penstock", peers=("ipc.aeron",), goal=1.0),
    Row(title="CPU time a message, 10 busy streams: 1000 open streams ÷ 10 open streams",
        ours="streams",
        metric="cpu_ratio", goal=1.1, at_least=False),
    Row(title="CPU of an idle daemon with 100 connected streams, in cores", ours="idle.penstock",
        metric="worst_daemon_core", goal=0.01, at_least=False),
)
