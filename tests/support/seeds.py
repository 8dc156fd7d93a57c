# SPDX-License-Identifier: Apache-2.0
"""What the scenarios of seeds have: drawn once, since many tests ask for the same seeds."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator, Sequence

from penstock.sim.generate.fuzz import generate


@functools.cache
def classes_of(seed: int) -> Sequence[str]:
    """The classes of the scenario that a seed draws."""
    return tuple(generate(seed).classes)


#: A broken rule is to be found among the seeds up to this one.
SEEDS = 2000
#: A search tries them all, for ``first_seeds``.
SEARCHES = "PENSTOCK_SEARCH" in os.environ


def seeds_where(chosen: Callable[[int], bool], most: int) -> Iterator[int]:
    """At most so many seeds that are chosen; in a search, all that are."""
    found = (seed for seed in range(1, SEEDS + 1) if chosen(seed))
    yield from itertools.islice(found, SEEDS if SEARCHES else most)


def seeds_with(name: str, most: int) -> Iterator[int]:
    """At most so many seeds whose scenarios have the class; in a search, all that have it."""
    return seeds_where(lambda seed: name in classes_of(seed), most)
