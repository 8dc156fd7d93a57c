# SPDX-License-Identifier: Apache-2.0
"""A Sobol sequence of up to eight dimensions, shifted by a seed.

The method is that of Sobol (1967). The direction numbers are those of Joe and Kuo (2008): the first
eight dimensions of ``new-joe-kuo-6``. A sample of conditions must cover each pair of axes evenly,
even if the sample has few points. Pseudo-random points would leave large areas of such a pair
uncovered. The direction numbers of eight dimensions are only 21 numbers, so this module needs no
library. The seed changes the points: each coordinate is combined with random bits by an exclusive
or. The changed points cover the cube as evenly as the points of the unchanged sequence.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

_BITS: Final = 32
#: Degree, coefficients and initial direction numbers of dimensions 2 to 8.
_JOE_KUO: Final = (
    (1, 0, (1,)),
    (2, 1, (1, 3)),
    (3, 1, (1, 3, 1)),
    (3, 2, (1, 1, 1)),
    (4, 1, (1, 1, 3, 3)),
    (4, 4, (1, 3, 5, 13)),
    (5, 2, (1, 1, 5, 5, 17)),
)
MOST_DIMENSIONS: Final = 1 + len(_JOE_KUO)


def _directions(dimension: int) -> list[int]:
    """Direction numbers of a dimension, the first for the lowest bit of the index."""
    if dimension == 0:
        return [1 << (_BITS - 1 - bit) for bit in range(_BITS)]
    degree, coefficients, initial = _JOE_KUO[dimension - 1]
    found = [number << (_BITS - 1 - bit) for bit, number in enumerate(initial)]
    for bit in range(degree, _BITS):
        number = found[bit - degree] ^ (found[bit - degree] >> degree)
        for k in range(1, degree):
            if coefficients >> (degree - 1 - k) & 1:
                number ^= found[bit - k]
        found.append(number)
    return found


def points(dimensions: int, seed: int) -> Iterator[tuple[float, ...]]:
    """Yield points of the unit cube [0, 1) without end. The same seed gives the same points.

    :param dimensions: 1 to :data:`MOST_DIMENSIONS`.
    :raises ValueError: for another number of dimensions.
    """
    if not 1 <= dimensions <= MOST_DIMENSIONS:
        raise ValueError(f"dimensions={dimensions}: expected 1 to {MOST_DIMENSIONS}")
    rng = random.Random(seed)
    directions = [_directions(dimension) for dimension in range(dimensions)]
    values = [rng.getrandbits(_BITS) for _ in range(dimensions)]
    index = 0
    while True:
        yield tuple(value / 2**_BITS for value in values)
        bit = (~index & (index + 1)).bit_length() - 1     # of the lowest zero (Gray code)
        for dimension in range(dimensions):
            values[dimension] ^= directions[dimension][bit]
        index += 1
