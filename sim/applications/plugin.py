# SPDX-License-Identifier: Apache-2.0
"""The plugin of pytest: the fixture ``penstock_simulation``.

If penstock is installed, pytest loads this module in every run, so this module does not import
penstock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.sim.applications.simulation import Maker


@pytest.fixture
def penstock_simulation() -> Iterator[Maker]:
    """Return a function that makes simulations, as in ``sim = penstock_simulation(loss=0.05)``
    (docs/testing-your-application.md)."""
    from penstock.sim.applications.simulation import Maker

    maker = Maker()
    yield maker
    for simulation in maker.made:
        simulation.close()
