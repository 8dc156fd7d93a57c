# SPDX-License-Identifier: Apache-2.0
"""Compare streams with credits and streams without, in interleaved pairs:
``python -m bench.credits``.

The result of a row is the median of the ratios WITH / WITHOUT over its attempts, and the bound is
on the ratio to a stream with the benchmark's windows.  Credits bound the messages in flight, so
they also bound the bytes from publisher to reader.  A second ratio compares a rate with that of a
stream without credits whose windows permit as many bytes (decision 0570).  An attempt measures all
of them, one after the other, in alternating order, so that all meet the same load.
"""

from __future__ import annotations

import os
import sys
from statistics import quantiles
from typing import Final

import attrs
import click

from penstock._bench.runner import Settings, run

MANY: Final = 65536
SIZE: Final = 32
FRAME_BYTES: Final = 64                 # of a message of SIZE bytes, with its header
WINDOW: Final = 8 << 20                 # the largest: half a term


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

    @property
    def others(self) -> tuple[str, ...]:
        """What the row is compared with; its bound is for the first."""
        return ("windows",) if self.work == "rtt" else ("windows", "same bytes")

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


def settings(row: Row, contender: str, seconds: float) -> Settings:
    """Return what ``contender`` ("credits", "same bytes" or "windows") is measured with."""
    chosen = Settings(
        client=row.client, size=SIZE, seconds=seconds, warmup_s=seconds / 4, shared=row.shared,
        window=WINDOW,
    )
    if contender == "credits":
        return attrs.evolve(chosen, credits=row.credits)
    if contender == "windows":
        return chosen
    in_flight = row.credits * FRAME_BYTES
    if row.work == "ipc":
        return attrs.evolve(chosen, publisher_window=in_flight)
    # Unsent data and data that the reader has not consumed have a window each.
    return attrs.evolve(chosen, publisher_window=in_flight // 2, window=in_flight // 2)


def measure(row: Row, contender: str, seconds: float) -> float:
    """Return one result; :raises click.ClickException: messages were lost."""
    result = run(row.work, settings(row, contender, seconds))
    if result.get("hash_ok") is False:
        raise click.ClickException(f"{row.name}: messages were lost or changed")
    return float(result[row.metric])


def ratios(row: Row, attempts: int, seconds: float) -> dict[str, list[float]]:
    """Return the ratios of all attempts, by the contender without credits."""
    order = ["credits", *row.others]
    found: dict[str, list[float]] = {other: [] for other in row.others}
    for _ in range(attempts):
        results = {contender: measure(row, contender, seconds) for contender in order}
        order.reverse()
        for other in row.others:
            found[other].append(results["credits"] / results[other])
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
        for other, found in ratios(row, pairs, seconds).items():
            low, middle, high = quantiles(found, n=4)
            bound = f"bound {row.bound}, " if other == row.others[0] else ""
            click.echo(
                f"{row.name:24} {row.metric:10} to {other:10} median {middle:.3f}, quartiles "
                f"{low:.3f} to {high:.3f}, {bound}load {os.getloadavg()[0]:.1f}"
            )
            if bound and not row.is_met(middle):
                missed.append(row.name)
    if missed:
        raise click.ClickException(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    sys.exit(main())
