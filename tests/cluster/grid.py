# SPDX-License-Identifier: Apache-2.0
"""Cells of ``penstock sim grid nak`` on sockets: the same sample, restricted to what a small
machine can do, in network namespaces.  A round trip is made by delays of what each daemon receives.

A busy machine runs nobody in time.  So a cell is judged by the rates that its processes really had
in the run: what the publisher offered, and how often the reader looked.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs
from support.hosts import PenstockHost
from support.processes import Peer

import penstock
from cluster.network import HOSTS, Network
from penstock.sim.generate import grid
from penstock.sim.scenario import SECOND_NS

Start = Callable[..., PenstockHost]

#: "full" (``make soak``) draws more cells, and from wider axes.
IS_FULL: Final = os.environ.get("PENSTOCK_GRID") == "full"
#: Hexadecimal; by default the first eight digits of the hash of the commit.
SEED: Final = os.environ.get("PENSTOCK_GRID_SEED") or subprocess.run(
    ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False,
    cwd=Path(__file__).parent,
).stdout[:8] or "0"
POINTS: Final = 40 if IS_FULL else 8
_DRAWN: Final = 3000
_MOST_OFFERED: Final = 40_000_000 if IS_FULL else 20_000_000    # bytes a second, to all readers
_MOST_MESSAGES: Final = 15_000          # a second
_LONGEST_NS: Final = (40 if IS_FULL else 6) * SECOND_NS
#: Datagrams that a daemon delays at once; behind them it loses what comes.
_DELAYED: Final = 512
_MTU: Final = 1408
_CONFIG: Final = '[sockets]\nrcvbuf_bytes = "8m"\n'
GROUP: Final = "aeron:udp?endpoint=239.20.0.1:40456|interface=10.77.0.0/24"
_HEADER: Final = 32
_STATUS_MESSAGES_HEARD: Final = 8       # a system counter


def is_possible(cell: grid.Cell) -> bool:
    """Whether the machine can do it."""
    in_flight = cell.offered * (cell.rtt_ns // 2 + 50_000_000) // SECOND_NS // cell.mtu
    return (
        cell.group < HOSTS
        and cell.group * cell.offered <= _MOST_OFFERED
        and cell.offered // cell.frame <= _MOST_MESSAGES
        and cell.length_ns <= _LONGEST_NS
        and in_flight <= _DELAYED
        and cell.mtu == _MTU
    )


def sample(points: int, *, least_group: int = 1) -> list[grid.Cell]:
    """The first cells of the seed's sample that the machine can do."""
    cells = (
        cell for cell in grid.sample(int(SEED, 16), _DRAWN)
        if is_possible(cell) and cell.group >= least_group
    )
    return [cell for cell, _ in zip(cells, range(points), strict=False)]


def _seconds(time_ns: int) -> str:
    return f"{time_ns / SECOND_NS:.6f}"


@attrs.frozen(kw_only=True)
class Run:
    """What the publisher and the readers of our own told."""

    cell: grid.Cell
    published: dict[str, Any]
    readers: list[dict[str, Any]]       # the slow ones first
    status_messages: int                # that the sender heard
    outrun: int                         # events that say a reader is too slow

    def _turns(self, reader: dict[str, Any]) -> list[tuple[int, int]]:
        begin, end = self.published["warmAt"], self.published["at"]
        return [(at, taken) for at, taken in reader["turns"] if begin <= at <= end]

    def outcome(self) -> grid.Outcome:
        """In the terms of the grid; rates are those of this run."""
        published, frame = self.published, self.cell.frame
        spent_ns = published["at"] - published["warmAt"]
        offered = int(published["offered"] * frame * SECOND_NS / spent_ns)
        worst: tuple[float, grid.Cell, int] | None = None
        for reader in self.readers[:self.cell.slow]:
            turns = self._turns(reader)
            span_ns = turns[-1][0] - turns[0][0]
            cell = attrs.evolve(
                self.cell, offered=offered, cadence_ns=span_ns // (len(turns) - 1),
                nominal=self.cell.batch * frame * (len(turns) - 1) * SECOND_NS // span_ns,
            )
            read = sum(taken for _, taken in turns[1:]) * frame * SECOND_NS // span_ns
            if worst is None or read / cell.attainable < worst[0]:
                worst = (read / cell.attainable, cell, read)
        assert worst is not None
        holes = [hole for reader in self.readers for hole in reader["holes"]]
        missed = sum(count for _, count in holes)
        late = sum(
            max(0, min(first + count, published["sent"]) - max(first, published["warmSent"]))
            for first, count in holes
        )
        return grid.Outcome(
            cell=worst[1], seed=0,
            sent=(published["sent"] - published["warmSent"]) * frame * SECOND_NS // spent_ns,
            read=worst[2], others=0, missed=late, missed_early=missed - late, gaps=len(holes),
            gap_messages=missed, missed_all=missed, events=self.outrun,
            signals=published["signals"], signals_late=published["signals"],
            status_messages=self.status_messages, took_s=0.0,
        )

    def longest_wait_ns(self) -> int:
        """For which a slow reader did not look."""
        return max(
            later[0] - earlier[0]
            for reader in self.readers[:self.cell.slow]
            for earlier, later in zip(reader["turns"], reader["turns"][1:], strict=False)
        )

    def is_disturbed(self) -> bool:
        """Whether the machine kept a slow reader from its cadence for so long that the law takes it
        for paused, or that what is sent meanwhile does not fit into its queue."""
        cell = self.cell
        late_ns = self.longest_wait_ns() - cell.cadence_ns
        return (
            self.longest_wait_ns() > max(2 * cell.cadence_ns, 250_000_000)
            or late_ns * cell.attainable // SECOND_NS > cell.window // 4
        )

    def is_irregular(self) -> bool:
        """Whether a slow reader was a quarter of its cadence late: the simulator's never are."""
        return 4 * self.longest_wait_ns() > 5 * self.cell.cadence_ns

    def is_conserved(self) -> str:
        """Empty: each message was delivered or counted by a Gap, to each reader of ours."""
        for number, reader in enumerate(self.readers):
            if reader["wrong"] or reader["unknown"]:
                return (
                    f"reader {number}: (expected, got, told by Gaps) {reader['wrong'][:5]}, "
                    f"{reader['unknown']} Gaps without a count"
                )
        return ""


def run(cell: grid.Cell, lan: Network, start: Start, folder: Path, *, fc: str = "nak",
        theirs: Callable[[], Peer] | None = None) -> tuple[Run, dict[str, Any]]:
    """Runs a cell.  ``theirs`` starts the last reader of the group, which is not ours; second
    result: its account."""
    config = folder / "grid.toml"
    config.write_text(_CONFIG)
    options = ["--config", str(config)]
    if cell.rtt_ns > 1:
        options += ["--impair", f"delay={cell.rtt_ns // 2}ns"]
    ours = cell.group - (theirs is not None)
    hosts = [start(0, *options)]
    traces = [folder / f"trace-{host}.jsonl" for host in range(1, 1 + ours)]
    hosts += [
        start(host, "--trace", str(trace), *options)
        for host, trace in enumerate(traces, start=1)
    ]
    channel = f"{GROUP}|term-length={cell.term_bytes}|mtu={cell.mtu}|fc={fc}"
    with contextlib.ExitStack() as stack:
        readers = [
            stack.enter_context(_reader(cell, hosts[1 + number], slow=number < cell.slow))
            for number in range(ours)
        ]
        if theirs is not None:
            readers.append(stack.enter_context(theirs()))
        for reader in readers:
            reader.wait("added")
        publisher = stack.enter_context(hosts[0].run(
            "-m", "support.cadence", f"--dir={hosts[0].directory}", f"--channel={channel}",
            f"--size={cell.frame - _HEADER}", f"--rate={cell.offered / cell.frame}",
            # A burst is no reason for a signal.
            f"--burst={max(2.0, cell.window / 16 / cell.frame)}",
            f"--warm-s={_seconds(cell.warm_ns)}", f"--length-s={_seconds(cell.length_ns)}",
        ))
        for reader in readers:
            reader.wait("image")
        publisher.say()
        published = publisher.wait("done")
        with penstock.connect(hosts[0].directory) as client:
            status_messages = client.counters[_STATUS_MESSAGES_HEARD]
        for reader in readers:
            reader.say()
        accounts = [reader.wait("done") for reader in readers]
        publisher.say()
        publisher.wait("end")
    for host in hosts:
        host.stop()
    found = Run(
        cell=cell, published=published, readers=accounts[:ours], status_messages=status_messages,
        outrun=sum(_events(trace, "reader_outrun") for trace in traces),
    )
    return found, (accounts[ours] if theirs is not None else {})


def _reader(cell: grid.Cell, host: PenstockHost, *, slow: bool) -> Peer:
    pace = [f"--batch={cell.batch}", f"--cadence-ns={cell.cadence_ns}"] if slow else []
    return host.run(
        "-m", "support.cadence", f"--dir={host.directory}", f"--channel={GROUP}", *pace
    )


def _events(trace: Path, name: str) -> int:
    return sum(json.loads(line).get("event") == name for line in trace.read_text().splitlines())
