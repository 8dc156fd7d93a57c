# SPDX-License-Identifier: Apache-2.0
"""Test ``fc=nak`` under a sample of network and load conditions, and state the required result for
each combination of conditions (``penstock sim grid nak``).

A cell is one combination of conditions, with one publisher and a group of readers. Some of the
readers are slow: they consume a whole batch at a fixed interval. The sample is a Sobol sequence
over six axes (:mod:`penstock.sim.generate.sobol`); by default, its seed consists of the first eight
hexadecimal digits of the tested commit's hash.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Final

import attrs

from penstock.sim.core import Link
from penstock.sim.generate.sobol import points
from penstock.sim.scenario import (
    MS_NS,
    SECOND_NS,
    HostScript,
    PublisherScript,
    Scenario,
    SubscriberScript,
)
from penstock.sim.world import World

#: Bytes a second below which the rate is never cut; ``PS_PRESSURE_FLOOR``.
FLOOR: Final = 128 * 1024
#: Most bytes a second that the readers of a cell are offered together.
MOST_OFFERED: Final = 200_000_000
_START_NS: Final = SECOND_NS // 2
_MTUS: Final = (1408, 4096, 8192, 16384, 32768)
_MESSAGES: Final = 250_000          # of a run, if the MTU allows: what keeps a cell cheap
_LEAST_FRAME: Final = 64
_HEADER: Final = 32
_SLICES: Final = 400
_ENDPOINT: Final = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.0.0.0/24"


@attrs.frozen(kw_only=True)
class Cell:
    """One combination of conditions. Each rate is a number of bytes of the log (including frame
    headers) per second."""

    number: int
    cadence_ns: int
    nominal: int            # what a slow reader would take, if there were enough
    offered: int
    term_bytes: int
    rtt_ns: int
    group: int              # readers
    slow: int               # of them, those that take batches
    mtu: int
    frame: int              # bytes of log for each message
    batch: int              # messages each cadence

    @property
    def window(self) -> int:
        return self.term_bytes // 2

    @property
    def offer(self) -> int:
        """Return the highest possible rate of the publisher (o*): the offered rate, or one window
        in each round trip if this is less."""
        return min(self.offered, self._per_rtt())

    @property
    def attainable(self) -> int:
        """Return the *attainable rate* r*: the highest rate at which a slow reader of this cell can
        get data.
        """
        held = (self.window - self.mtu) * SECOND_NS // self.cadence_ns
        return min(self.nominal, self.offered, held, self._per_rtt())

    @property
    def floor(self) -> int:
        """Return the lowest rate of a sender under NAK-strength control: two datagrams of the
        cell's MTU in 50 ms."""
        return max(FLOOR, 40 * self.mtu)

    @property
    def warm_ns(self) -> int:
        """Return the duration of the warm-up, which begins at the first message. After the warm-up
        the readers must not miss any message.
        """
        return max(SECOND_NS, 5 * self.cadence_ns, 10 * self.rtt_ns)

    @property
    def length_ns(self) -> int:
        return max(5 * SECOND_NS, 40 * self.cadence_ns, 60 * self.rtt_ns)

    @property
    def peak_ppm(self) -> int:
        """Return how much unread data a slow reader has just before it reads a batch. The unit is a
        millionth of half a term.
        """
        return self.offer * self.cadence_ns // SECOND_NS * 1_000_000 // self.window

    def _per_rtt(self) -> int:
        return self.window * SECOND_NS // self.rtt_ns if self.rtt_ns else 1 << 62

    def kind(self) -> str:
        """Return the cell's kind, which determines the results that a run of the cell must have:
        ``healthy``, ``copes``, ``slow`` or ``lost``."""
        if self.nominal >= self.offer and self.offered * 5 <= self._per_rtt() * 4:
            if self.peak_ppm < 500_000:
                return "healthy"
            if self.peak_ppm < 870_000:
                return "copes"
        return "lost" if self.attainable < 2 * self.floor else "slow"


def _log(share: float, low: float, high: float) -> float:
    return low * math.exp(share * math.log(high / low))


def _cell(number: int, point: tuple[float, ...], *, copes: bool) -> Cell | None:
    """The cell at a point; None where the readers together are offered too much."""
    cadence_ns = int(_log(point[0], MS_NS, SECOND_NS))
    share = _log(point[1], 1.05, 2) if copes else _log(point[1], 0.05, 0.95)
    term = 1 << min(24, 16 + int(point[2] * 9))
    # A tenth has no round trip at all; the others 1 to 200 ms.
    rtt_ns = 0 if point[3] < 0.1 else int(_log((point[3] - 0.1) / 0.9, MS_NS, 200 * MS_NS))
    group = min(50, int(_log(point[4], 1, 51)))
    offered = int(_log(point[5], 1e6, 100e6))
    if group * offered > MOST_OFFERED:
        return None
    nominal = int(offered * share)
    length_ns = max(5 * SECOND_NS, 40 * cadence_ns, 60 * rtt_ns)
    sent = min(offered, (term // 2) * SECOND_NS // rtt_ns if rtt_ns else offered)
    wanted = sent * length_ns // SECOND_NS // _MESSAGES
    most = max(_MTUS[0], term // 32)
    mtu = min((m for m in _MTUS if wanted <= m <= most), default=max(m for m in _MTUS if m <= most))
    each = nominal * cadence_ns // SECOND_NS
    frame = max(_LEAST_FRAME, min(mtu, each) // 32 * 32)
    # A whole number of messages each cadence. Messages that do not fit into half a term are never
    # available.
    batch = max(1, round(each / frame))
    cadence_ns = batch * frame * SECOND_NS // nominal
    batch = min(batch, term // frame)
    many = group >= 4 and number % 3 == 0
    return Cell(
        number=number, cadence_ns=cadence_ns, nominal=nominal, offered=offered, term_bytes=term,
        rtt_ns=rtt_ns, group=group, slow=group // 4 if many else 1, mtu=mtu, frame=frame,
        batch=batch,
    )


def sample(seed: int, cells: int) -> list[Cell]:
    """Return the cells of a seed: the first ``cells`` combinations that are possible. In every
    tenth cell, the "slow" readers read in batches, but their average rate can exceed the
    publisher's rate."""
    found: list[Cell] = []
    for point in points(6, seed):
        if len(found) == cells:
            break
        cell = _cell(len(found), point, copes=len(found) % 10 == 9)
        if cell is not None:
            found.append(cell)
    return found


def scenario(cell: Cell) -> Scenario:
    """Return the scenario of a cell: of one combination of conditions."""
    receivers = range(1, 1 + cell.group)
    channel = f"{_ENDPOINT}|term-length={cell.term_bytes}|mtu={cell.mtu}|fc=nak"
    size = cell.frame - _HEADER
    return Scenario(
        name=f"grid-{cell.number}",
        hosts=1 + cell.group,
        link=Link(delay_ns=cell.rtt_ns // 2),
        machines=tuple(
            HostScript(host=host, rcvbuf_bytes=32 << 20) for host in range(1 + cell.group)
        ),
        publishers=(
            PublisherScript(
                host=0, channel=channel, count=1 << 30, size_low=size, size_high=size,
                start_ns=_START_NS, interval_ns=cell.frame * SECOND_NS // cell.offered,
            ),
        ),
        subscribers=tuple(
            SubscriberScript(
                host=host, channel=_ENDPOINT, may_join_late=True, may_miss=True,
                interval_ns=cell.cadence_ns if host <= cell.slow else 0,
                batch=cell.batch if host <= cell.slow else 0,
            )
            for host in receivers
        ),
        hostile=True,       # judged here alone: the probe would cost more than the run
    )


@attrs.frozen(kw_only=True)
class Outcome:
    """Result of one run of a cell. If the cell has several slow readers, ``read`` is the rate of
    the slowest of them.
    """

    cell: Cell
    seed: int
    sent: int               # bytes a second, after the warm-up
    read: int               # bytes a second, of the worst slow reader
    others: int             # bytes a second, of the worst reader that copes
    missed: int             # messages sent after the warm-up, of all readers
    missed_early: int
    gaps: int               # explicit gaps
    gap_messages: int       # messages that they count; -1: one did not know
    missed_all: int         # by the readers' own account
    events: int             # that say a reader is below the floor
    signals: int            # PRESSURE frames heard
    signals_late: int       # after the warm-up
    status_messages: int
    took_s: float
    error: str = ""

    @property
    def share(self) -> float:
        """Return the rate of the slow reader as a share of the attainable rate (r*)."""
        return self.read / max(1, self.cell.attainable)

    def cause(self) -> str:
        """Return the reason why the run failed; return an empty text if the run passed."""
        kind = self.cell.kind()
        if self.error:
            return self.error
        if kind == "lost":
            return self._cause_of_lost()
        if kind == "healthy" and self.signals > 0:
            return f"{self.signals} signals though healthy"
        if self.missed > 0:
            return f"missed {self.missed} messages"
        wanted = {"healthy": 0.99, "copes": 0.95}.get(kind, 0.0) * self.cell.offer
        if self.sent < wanted:
            return f"sent {self.sent / self.cell.offer:.1%} of o*"
        if self.share < 0.9:
            return f"read {self.share:.1%} of r*"
        return ""

    def _cause_of_lost(self) -> str:
        if self.missed_all == 0:
            return "" if self.share >= 0.9 else f"read {self.share:.1%} of r*, without a Gap"
        if self.gap_messages != self.missed_all:
            return f"gaps count {self.gap_messages} of {self.missed_all} messages missed"
        if self.missed > 0 and self.events != self.cell.slow:
            return f"{self.events} events for {self.cell.slow} readers below the floor"
        return ""


class _Readers:
    """Counts of a run's readers from one moment on."""

    def __init__(self, world: World, cell: Cell) -> None:
        self._world = world
        self._cell = cell
        self.sent_before = 0
        self.missed = [0] * cell.group      # at the last look
        self.late = [0] * cell.group        # sent after the warm-up

    def check(self, *, warm: bool) -> list[int]:
        """Return the number of messages that each reader has received so far. If the warm-up is
        over (``warm``), also count the messages that each reader has missed since the last call.
        This count omits messages that were sent before the end of the warm-up.
        """
        publisher = self._world.publishers[0]
        ledger = publisher.ledgers[0]
        found: list[int] = []
        if not warm:
            self.sent_before = self._world.native.ledger_messages(ledger)
        for number, subscriber in enumerate(self._world.subscribers):
            reader = subscriber.reader(ledger)
            if warm:
                late = min(reader.missed - self.missed[number], reader.next - self.sent_before)
                self.late[number] += max(0, late)
            self.missed[number] = reader.missed
            found.append(reader.messages)
        return found


def run_cell(cell: Cell, seed: int) -> Outcome:
    """Run a cell once. If the run raises an exception, the cell fails with this exception as the
    reason."""
    began_s = time.process_time()
    try:
        return _run(cell, seed, began_s)
    except Exception as error:  # the finding is the exception, whichever it is
        return Outcome(
            cell=cell, seed=seed, sent=0, read=0, others=0, missed=0, missed_early=0, gaps=0,
            gap_messages=0, missed_all=0, events=0, signals=0, signals_late=0, status_messages=0,
            took_s=time.process_time() - began_s, error=f"{type(error).__name__}: {error}",
        )


def _run(cell: Cell, seed: int, began_s: float) -> Outcome:
    with World(scenario(cell), seed) as world:
        world.run_until(_START_NS + cell.warm_ns)
        readers = _Readers(world, cell)
        before, sent_before = readers.check(warm=False), readers.sent_before
        signals_before = _signals(world)
        left_ns = cell.length_ns - cell.warm_ns
        for part in range(1, _SLICES + 1):
            world.run_until(_START_NS + cell.warm_ns + left_ns * part // _SLICES)
            after = readers.check(warm=True)
        rates = [
            (now - then) * cell.frame * SECOND_NS // left_ns
            for then, now in zip(before, after, strict=True)
        ]
        sent = world.native.ledger_messages(world.publishers[0].ledgers[0]) - sent_before
        gaps = [
            gap
            for subscriber in world.subscribers
            for gap in subscriber.gaps
            # A gap that is reported before the next message is read is not counted as missed yet.
            if (gap.to_position or 0) < subscriber.reader(world.publishers[0].ledgers[0]).position
        ]
        known = all(gap.messages is not None for gap in gaps)
        violations = world.native.violations()
        return Outcome(
            cell=cell,
            seed=seed,
            sent=sent * cell.frame * SECOND_NS // left_ns,
            read=min(rates[:cell.slow]),
            others=min(rates[cell.slow:], default=0),
            missed=sum(readers.late),
            missed_early=sum(readers.missed) - sum(readers.late),
            gaps=len(gaps),
            gap_messages=sum(gap.messages or 0 for gap in gaps) if known else -1,
            missed_all=sum(readers.missed),
            events=sum(
                name == "reader_outrun" for host in world.hosts for _, name, _ in host.events
            ),
            signals=_signals(world),
            signals_late=_signals(world) - signals_before,
            status_messages=world.network.wire().status_messages,
            took_s=time.process_time() - began_s,
            error=violations[0] if violations else "",
        )


def _signals(world: World) -> int:
    return sum(
        world.hosts[0].driver.publication_status(publication.id).pressure_signals
        for publication in world.hosts[0].publications()
    )


def judge(cells: Iterable[Cell], seeds: int, workers: int) -> Iterator[Outcome]:
    """Run every cell with each seed in worker processes; yield results in the order of
    completion."""
    jobs = [(cell, seed) for seed in range(1, 1 + seeds) for cell in cells]
    if workers == 1:
        for cell, seed in jobs:
            yield run_cell(cell, seed)
        return
    with ProcessPoolExecutor(max_workers=workers) as pool:
        # The longest first: no worker is left alone with one at the end.
        jobs.sort(key=lambda job: -job[0].offer * job[0].group * job[0].length_ns)
        for done in as_completed([pool.submit(run_cell, *job) for job in jobs]):
            yield done.result()


@attrs.frozen(kw_only=True)
class Verdict:
    """Verdict of all runs. Combines the results of all runs of a cell into one result of the cell.
    A cell passes if its runs with all seeds pass. The cell's share of the attainable rate is the
    lowest share of these runs."""

    cells: int
    passed: int
    worst_share: float              # of r*, in any cell that is judged by it
    failures: tuple[tuple[Cell, str], ...]
    took_s: float                   # processor time

    @property
    def holds(self) -> bool:
        return self.passed * 100 >= self.cells * 95 and self.worst_share >= 0.7


def verdict(outcomes: list[Outcome]) -> Verdict:
    """Summarise the runs: the numbers of cells and of passed cells, the worst share of the
    attainable rate, and the failed cells."""
    causes: dict[int, tuple[Cell, str]] = {}
    worst = 1.0
    for outcome in sorted(outcomes, key=lambda o: (o.cell.number, o.seed)):
        cause = outcome.cause()
        causes.setdefault(outcome.cell.number, (outcome.cell, cause))
        if cause and not causes[outcome.cell.number][1]:
            causes[outcome.cell.number] = (outcome.cell, cause)
        if outcome.cell.kind() != "lost":
            worst = min(worst, outcome.share)
    failures = tuple((cell, cause) for cell, cause in causes.values() if cause)
    return Verdict(
        cells=len(causes), passed=len(causes) - len(failures), worst_share=worst,
        failures=failures, took_s=sum(o.took_s for o in outcomes),
    )


def describe(cell: Cell) -> str:
    """Return the conditions of a cell as one line of text."""
    return (
        f"cell {cell.number:3} {cell.kind():7} {cell.batch} x {cell.frame} B each "
        f"{cell.cadence_ns / MS_NS:.1f} ms of {cell.offered / 1e6:.1f} MB/s, "
        f"T {cell.term_bytes >> 10} KiB, RTT {cell.rtt_ns / MS_NS:.1f} ms, "
        f"{cell.slow} of {cell.group} slow, r* {cell.attainable / 1e6:.3f} MB/s"
    )


def report(outcome: Outcome) -> str:
    """Return the result of a run as one line of text."""
    o = outcome
    return (
        f"{describe(o.cell)} | read {o.share:.1%} of r*, sent {o.sent / o.cell.offer:.1%} of o*, "
        f"missed {o.missed} after {o.missed_early}, {o.signals} signals, "
        f"{o.status_messages} status messages, {o.gaps} gaps, {o.took_s:.1f} s"
    )
