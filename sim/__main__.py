# SPDX-License-Identifier: Apache-2.0
"""``python -m penstock.sim SCENARIO --seed N``: run a scenario and print its report as JSON."""

from __future__ import annotations

import argparse
import json
import sys

import attrs

from penstock.sim.scenario import SCENARIOS
from penstock.sim.world import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.sim")
    parser.add_argument("scenario", choices=sorted(SCENARIOS))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    report = run(SCENARIOS[args.scenario](), args.seed)
    print(json.dumps(attrs.asdict(report), indent=2))
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
