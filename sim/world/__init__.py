# SPDX-License-Identifier: Apache-2.0
"""The virtual world: time, network, hosts and applications.

The names ``World`` and ``run`` are imported at their first use, so importing one module of this
folder does not import the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.sim.world.world import World, run

__all__ = ["World", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'penstock.sim.world' has no attribute {name!r}")
    from penstock.sim.world import world

    return getattr(world, name)
