# SPDX-License-Identifier: Apache-2.0
"""Measure the simulator: datagrams of the reference scenario that a core simulates a second.

    python -m bench.sim [--rounds 5] [--count 20000]

Processor time counts, not time by the clock, so that other programs disturb the result little.
"""

from __future__ import annotations

import argparse
import statistics
import time

from penstock.sim.scenario import reference
from penstock.sim.world import run


def measure(count: int) -> float:
    """Return datagrams a second of one run."""
    started_s = time.process_time()
    report = run(reference(count=count), seed=1)
    took_s = time.process_time() - started_s
    if report.violations:
        raise SystemExit(f"the run is wrong: {report.violations[0]}")
    return report.network.sent / took_s


def main() -> None:
    """Print the median and the extremes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=20_000, help="messages a run")
    args = parser.parse_args()
    rates = sorted(measure(args.count) for _ in range(args.rounds))
    print(f"simulated datagrams a second: {statistics.median(rates):,.0f} "
          f"({rates[0]:,.0f} to {rates[-1]:,.0f} in {len(rates)} runs)")


if __name__ == "__main__":
    main()
