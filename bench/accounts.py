# SPDX-License-Identifier: Apache-2.0
"""Measure what ``publication.pressure()`` costs: ``python -m bench.accounts``.

The call reads shared memory. Its CPU time must not depend on the number of publications.
"""

from __future__ import annotations

import os
import time
from typing import Final

import click

import penstock
from penstock._bench import runner
from penstock._bench.network import network

OPEN: Final = (1, 64, 1024, 4096)
_ROUNDS: Final = 30
_CALLS: Final = 200
_SETTINGS: Final = runner.Settings(term_length=64 * 1024)


def cost_us(publications: list[penstock.Publication]) -> tuple[float, float]:
    """Return the CPU time of a call: of one publication again and again, and of each in turn. Both
    are the least of some rounds."""
    one = min(_timed([publications[0]] * _CALLS) for _ in range(_ROUNDS))
    each = min(_timed(publications) for _ in range(_ROUNDS // 5))
    return one, each


def _timed(publications: list[penstock.Publication]) -> float:
    began = time.thread_time_ns()
    for publication in publications:
        publication.pressure()
    return (time.thread_time_ns() - began) / len(publications) / 1e3


@click.command()
@click.option("--most", default=OPEN[-1], show_default=True, type=click.IntRange(1),
              help="Greatest number of open publications.")
def main(most: int) -> None:
    """Print the CPU time of publication.pressure() by number of open publications."""
    with (
        network(veth=False) as where,
        runner.hosts(_SETTINGS, where, count=1) as hosts,
        penstock.connect(hosts.near) as client,
    ):
        publications: list[penstock.Publication] = []
        for count in (number for number in OPEN if number <= most):
            while len(publications) < count:
                publications.append(client.add_publication("aeron:ipc", 1000 + len(publications)))
            one, each = cost_us(publications)
            click.echo(f"{count:5} publications: one {one:.1f} us, each in turn {each:.1f} us")
    click.echo(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
