# SPDX-License-Identifier: Apache-2.0
"""Compare streams with credits and streams without, in interleaved pairs:
``python -m bench.credits``.

A pair measures both, one after the other, in alternating order, so that both meet the same load.
The result of a row is the median of the ratios WITH / WITHOUT over its pairs.  The table has the
bound of each row and the load of the machine.
"""

from __future__ import annotations

import os
import sys
from statistics import median, quantiles
from typing import Any, Final

import attrs
import click

from penstock._bench.runner import Settings, run

MANY: Final = 65536
WINDOW: Final = 8 << 20                 # that of so many credits: half a term


@attrs.frozen(kw_only=True)
class Row:
    """One comparison. Rates have a lowest ratio, times a highest."""

    name: str
    work: str
    metric: str
    bound: float
    credits: int = MANY
    client: str = "native"
    shared: bool = False

    def is_met(self, ratio: float) -> bool:
        return ratio <= self.bound if self.metric == "p50_us" else ratio >= self.bound


def _rates(work: str) -> tuple[Row, ...]:
    return (
        Row(name=f"{work} exclusive", work=work, metric="msgs_per_s", bound=0.95),
        Row(name=f"{work} batches, exclusive", work=work, metric="msgs_per_s", bound=0.95,
            client="batch"),
        Row(name=f"{work} batches, shared", work=work, metric="msgs_per_s", bound=0.95,
            client="batch", shared=True),
        Row(name=f"{work} shared", work=work, metric="msgs_per_s", bound=0.85, shared=True),
    )


ROWS: Final = (
    *_rates("ipc"), *_rates("udp"),
    Row(name="rtt, one credit", work="rtt", metric="p50_us", bound=1.3, credits=1),
)


def measure(row: Row, credits: int, seconds: float) -> dict[str, Any]:
    """Return one result; :raises click.ClickException: messages were lost."""
    result = run(row.work, Settings(
        client=row.client, seconds=seconds, warmup_s=seconds / 4, credits=credits,
        shared=row.shared, window=WINDOW,
    ))
    if result.get("hash_ok") is False:
        raise click.ClickException(f"{row.name}: messages were lost or changed")
    return result


def ratios(row: Row, pairs: int, seconds: float) -> list[float]:
    """Return the ratio of each pair."""
    found = []
    for number in range(pairs):
        order = (0, row.credits) if number % 2 == 0 else (row.credits, 0)
        rates = {credits: measure(row, credits, seconds)[row.metric] for credits in order}
        found.append(rates[row.credits] / rates[0])
    return found


@click.command()
@click.option("--pairs", type=click.IntRange(3), default=5, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.2), default=0.8, show_default=True)
@click.option("--only", multiple=True, help="Start of a row's name; may repeat.")
def main(pairs: int, seconds: float, only: tuple[str, ...]) -> None:
    """Measure each row with credits and without; fail if a median misses its bound."""
    missed = []
    for row in ROWS:
        if only and not row.name.startswith(only):
            continue
        found = ratios(row, pairs, seconds)
        low, _, high = quantiles(found, n=4)
        click.echo(
            f"{row.name:24} {row.metric:10} median {median(found):.3f}, quartiles {low:.3f} to "
            f"{high:.3f}, bound {row.bound}, load {os.getloadavg()[0]:.1f}"
        )
        if not row.is_met(median(found)):
            missed.append(row.name)
    if missed:
        raise click.ClickException(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    sys.exit(main())
