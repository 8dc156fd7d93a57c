# SPDX-License-Identifier: Apache-2.0
"""Terms of log buffers, allocated one at a time ahead of the writers.

A term that cannot be allocated is asked for again until it can: meanwhile its stream is held with
cause ``storage``, and nothing is lost.
"""

from __future__ import annotations

from penstock.core.driver_types import ALL_TERMS, ObjectKind
from penstock.daemon.conductor.actions import (
    ImageReserved,
    PublicationReserved,
    ReserveTerm,
)
from penstock.daemon.conductor.linking import report_refusal
from penstock.daemon.conductor.model import Image, LogFile, Publication
from penstock.daemon.conductor.registry import note_log
from penstock.daemon.conductor.saga import Refused, Saga
from penstock.daemon.conductor.world import World

_TERMS = 3


def _owner(world: World, kind: ObjectKind, object_id: int) -> Image | Publication | None:
    if kind is ObjectKind.IMAGE:
        return world.images.get(object_id)
    return world.publications.get(object_id)


def on_term_needed(world: World, kind: ObjectKind, object_id: int) -> Saga[None]:
    """Allocates the next term and says so; on failure tries again after a while."""
    owner = _owner(world, kind, object_id)
    if owner is None or owner.log.reserving:
        return
    log = owner.log
    if log.reserved_terms >= _TERMS:
        _tell(world, kind, object_id, ALL_TERMS)
        return
    log.reserving = True
    try:
        yield from _reserve(world, log)
    except Refused as refused:
        report_refusal(world, f"stream {owner.stream_id}", refused)
        log.reserving = False
        world.timers.at(
            world.now_ns + world.settings.storage_retry_ns,
            lambda: _again(world, kind, object_id),
        )
        return
    log.reserving = False
    if _owner(world, kind, object_id) is not owner:
        world.storage.give_back(log.term_length)    # freed meanwhile, without this term
        return
    log.reserved_terms += 1
    log.reserved_position += log.term_length
    note_log(world, owner)
    all_there = log.reserved_terms >= _TERMS
    _tell(world, kind, object_id, ALL_TERMS if all_there else log.reserved_position)


def _reserve(world: World, log: LogFile) -> Saga[None]:
    world.storage.take(log.term_length, f"the next term of {log.path}")
    try:
        yield ReserveTerm(
            path=log.path, term_length=log.term_length, position=log.reserved_position
        )
    except Refused:
        world.storage.give_back(log.term_length)
        raise


def _again(world: World, kind: ObjectKind, object_id: int) -> None:
    world.runner.start(on_term_needed(world, kind, object_id), lambda value, error: None)


def _tell(world: World, kind: ObjectKind, object_id: int, position: int) -> None:
    if kind is ObjectKind.IMAGE:
        world.emit(ImageReserved(image_id=object_id, position=position))
    else:
        world.emit(PublicationReserved(publication_id=object_id, position=position))
