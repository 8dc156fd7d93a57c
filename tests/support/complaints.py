# SPDX-License-Identifier: Apache-2.0
"""What the oracles say of the scenarios of seeds.  ``python complaints.py early|whole`` tries the
seeds of its standard input until they complain: it prints each seed, and then the complaint."""

from __future__ import annotations

import functools
import sys

from penstock.sim.generate.fuzz import generate
from penstock.sim.scenario import SECOND_NS
from penstock.sim.world import World, run
from penstock.sim.world.host import LivelockError

EARLY_S = 20


@functools.cache
def early(seed: int) -> str | None:
    """The probe's complaint in the first ``EARLY_S`` seconds."""
    try:
        with World(generate(seed), seed) as world:
            for second in range(1, EARLY_S + 1):
                world.run_until(second * SECOND_NS)
                if violations := world.native.violations():
                    return str(violations[0])
    except LivelockError as error:      # also when the world closes
        return str(error)
    return None


@functools.cache
def whole(seed: int) -> str | None:
    """The first complaint of all oracles, also those of the end."""
    violations = run(generate(seed), seed).violations
    return str(violations[0]) if violations else None


def main() -> None:
    """Try seeds until one fails."""
    look = {"early": early, "whole": whole}[sys.argv[1]]
    for seed in map(int, sys.stdin.read().split()):
        print(seed, flush=True)
        if complaint := look(seed):
            print(complaint.partition("\n")[0])
            break


if __name__ == "__main__":
    main()
