# SPDX-License-Identifier: Apache-2.0
"""Strategies in Python: when they are asked, and what becomes of a late answer.

Every ``STEP_NS`` a publication's strategy sees what its receivers said last.  Its limit counts for
``VALID_NS``; a strategy that needs longer than ``DEADLINE_NS`` is late: its answer is dropped,
logged once and counted, and meanwhile, as whenever it fails, the built-in rule applies."""

from __future__ import annotations

from typing import Any, Final

from penstock.core.driver_types import FlowControl
from penstock.daemon.conductor.actions import (
    LogError,
    ReadReceivers,
    RunStrategy,
    SetPublicationLimit,
)
from penstock.daemon.conductor.machines import PublicationState
from penstock.daemon.conductor.model import Publication
from penstock.daemon.conductor.saga import Refused, Saga
from penstock.daemon.conductor.world import World

STEP_NS: Final = 10_000_000
DEADLINE_NS: Final = 20_000_000
VALID_NS: Final = 100_000_000


def start(world: World, publication: Publication) -> None:
    """Begins to ask the strategy of a publication, if it has one."""
    if publication.params.flow_control is FlowControl.CUSTOM:
        _again(world, publication)


def _again(world: World, publication: Publication) -> None:
    def due() -> None:
        if (
            world.publications.get(publication.id) is publication
            and publication.state is PublicationState.ACTIVE
        ):
            world.runner.start(_step(world, publication), lambda value, error: None)

    world.timers.at(world.now_ns + STEP_NS, due)


def _step(world: World, publication: Publication) -> Saga[None]:
    try:
        snapshots: tuple[Any, ...] = yield ReadReceivers(publication_id=publication.id)
        if snapshots:
            asked_ns = world.now_ns
            limit: int | None = yield RunStrategy(
                publication_id=publication.id, snapshots=snapshots, now_ns=asked_ns
            )
            if world.now_ns - asked_ns > DEADLINE_NS:
                publication.late_limits += 1
                if publication.late_limits == 1:
                    world.emit(LogError(
                        text=f"{publication.plan.channel}: fc={publication.params.strategy}: took "
                        f"{(world.now_ns - asked_ns) / 1e6:.0f} ms; the built-in rule applies"
                    ))
            elif limit is not None and publication.id in world.publications:
                world.emit(SetPublicationLimit(
                    publication_id=publication.id, limit=limit, until_ns=asked_ns + VALID_NS
                ))
    except Refused:
        return                          # it has gone meanwhile
    _again(world, publication)
