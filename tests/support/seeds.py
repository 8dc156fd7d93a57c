# SPDX-License-Identifier: Apache-2.0
"""What the scenarios of seeds have: drawn once, since many tests ask for the same seeds."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from penstock.sim.generate.fuzz import generate


@functools.cache
def classes_of(seed: int) -> Sequence[str]:
    """The classes of the scenario that a seed draws."""
    return tuple(generate(seed).classes)
