# SPDX-License-Identifier: Apache-2.0
"""What the scenarios of seeds have: drawn once, since many tests ask for the same seeds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

from penstock.sim.generate.fuzz import generate


@functools.cache
def classes_of(seed: int) -> Sequence[str]:
    """The classes of the scenario that a seed draws."""
    return tuple(generate(seed).classes)


#: A broken rule is to be found among the seeds up to this one.
SEEDS = 2000


def seeds_where(chosen: Callable[[int], bool], most: int, start: int = 1) -> Iterator[int]:
    """At most so many seeds from ``start`` to ``SEEDS`` that are chosen."""
    found = (seed for seed in range(start, SEEDS + 1) if chosen(seed))
    for _, seed in zip(range(most), found, strict=False):
        yield seed


def seeds_with(name: str, most: int, start: int = 1) -> Iterator[int]:
    """At most so many seeds from ``start`` to ``SEEDS`` whose scenarios have the class."""
    return seeds_where(lambda seed: name in classes_of(seed), most, start)
