# SPDX-License-Identifier: Apache-2.0
"""Cells of ``penstock sim grid nak`` on sockets, and in groups with one of Aeron's receivers.

The commit's hash draws the cells, or PENSTOCK_GRID_SEED.  ``make soak`` runs more of them, from
wider axes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from interop import aeron
from support.hosts import PenstockHost, memory_directory
from support.not_run import not_run

from cluster import grid as sockets
from cluster.network import Network
from penstock.sim.generate import grid

pytestmark = [pytest.mark.needs_root, pytest.mark.slow]

Start = Callable[..., PenstockHost]
CELLS = sockets.sample(sockets.POINTS)
#: With an Aeron receiver; one of our own is slow in each.
MIXED = [cell for cell in sockets.sample(60, least_group=2) if cell.kind() == "slow"][:2]
LEAST_SHARE = 0.7                       # of r*, in any cell
REPEATS = 2                             # of a run that the machine disturbed


def name(cell: grid.Cell) -> str:
    return f"{sockets.SEED}-{cell.number}"


@pytest.fixture
def run(lan: Network, start: Start, tmp_path: Path) -> Callable[..., sockets.Run]:
    """Runs a cell with readers of our own."""

    def run_cell(cell: grid.Cell) -> sockets.Run:
        found, _ = sockets.run(cell, lan, start, tmp_path)
        return found

    return run_cell


def cause(run: sockets.Run) -> str:
    """Why a cell failed though it passes in the simulator with the rates of this run."""
    outcome = run.outcome()
    found = outcome.cause()
    if not found or (run.is_irregular() and outcome.missed == 0 and outcome.share >= LEAST_SHARE):
        return ""
    simulated = grid.run_cell(attrs.evolve(outcome.cell, number=run.cell.number), 1)
    if simulated.cause() and outcome.share >= 0.9 * simulated.share:
        return ""           # so it is the law; the grid lists such cells
    return f"{grid.report(outcome)}: {found}; simulated: {grid.report(simulated)}"


@pytest.mark.parametrize("cell", CELLS, ids=name)
def test_a_cell_on_sockets_is_as_in_the_simulator(
    cell: grid.Cell, run: Callable[..., sockets.Run]
) -> None:
    """Every message is delivered or counted in a Gap, whatever happens.  A run in which the machine
    itself paused a reader says nothing else, and is repeated."""
    found = run(cell)
    for _ in range(REPEATS):
        assert found.is_conserved() == ""
        if not (why := cause(found)) or not found.is_disturbed():
            break
        found = run(cell)
    assert found.is_disturbed() or why == ""


def test_a_healthy_group_is_silent(run: Callable[..., sockets.Run]) -> None:
    """At most 60 status messages for each reader and 44 000 datagrams at a term of 16 MiB, and no
    signal."""
    rate, frame = 13_000_000, 1408
    found = run(grid.Cell(
        number=0, cadence_ns=2_000_000, nominal=2 * rate, offered=rate, term_bytes=16 << 20,
        rtt_ns=2_000_000, group=3, slow=3, mtu=frame, frame=frame, batch=37,
    ))
    assert found.is_conserved() == ""
    assert found.published["signals"] == 0
    assert found.status_messages * 44_000 <= 60 * 3 * found.published["sent"]


# ---- Aeron in the group --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def aeron_built() -> None:
    try:
        aeron.build()
    except aeron.NotBuiltError as error:
        not_run(f"interoperability with the real Aeron: {error}")


@pytest.mark.interop
@pytest.mark.usefixtures("aeron_built")
@pytest.mark.parametrize(
    ("cell", "slow"), list(zip(MIXED, (True, False), strict=True)), ids=["slow", "copes"]
)
def test_an_aeron_receiver_in_the_group_loses_no_more_than_under_max(
    lan: Network, start: Start, tmp_path: Path, cell: grid.Cell, slow: bool
) -> None:
    """It reads as slowly as the slow one of ours, or copes."""
    pace = [f"--batch={cell.batch}", f"--cadence-ns={cell.cadence_ns}"] if slow else []
    shares = {}
    for fc in ("max", "nak"):
        folder = memory_directory() / f"penstock-grid-{os.getpid()}"
        with aeron.aeron_host(folder, prefix=lan.prefix(cell.group)) as host:
            found, theirs = sockets.run(
                cell, lan, start, tmp_path, fc=fc,
                theirs=lambda host=host: host.reader(f"--channel={sockets.GROUP}", *pace),
            )
        assert found.is_conserved() == ""
        shares[fc] = theirs["missed"] / (theirs["missed"] + theirs["messages"])
    assert shares["nak"] <= shares["max"]
