# SPDX-License-Identifier: Apache-2.0
"""Memory stays bounded: what a daemon holds on disk is what its objects account for, its objects
are those that the scenario's applications may have, and nothing waits that no object waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.sim.apps import same_stream
from penstock.sim.scenario import SECOND_NS

if TYPE_CHECKING:
    from penstock.sim.host import Host
    from penstock.sim.world import World

_OFTEN_NS: Final = 20 * SECOND_NS
_SELDOM: Final = 100
_BLOCK: Final = 512
#: Of a log beside its terms: metadata, and the page that the last of it begins.
_LOG_EXTRA: Final = 12 * 1024
#: An image that has ended is kept for its slow readers; a reader rejoins no sooner than that.
_IMAGES_EACH: Final = 2
_TIMERS_EACH: Final = 16


def look(world: World) -> Iterator[str]:
    """What is wrong at this moment: asked each second, later on more seldom."""
    second, rest = divmod(world.now_ns, SECOND_NS)
    if rest == 0 and (world.now_ns <= _OFTEN_NS or second % _SELDOM == 0):
        for host in world.hosts:
            if host.running:
                yield from _look_at(world, host)


def _look_at(world: World, host: Host) -> Iterator[str]:
    held = host.conductor.world
    logs = [path.stat() for path in host.directory.glob("*/*.logbuffer")]
    objects = len(held.publications) + len(held.images)
    taken = sum(log.st_blocks * _BLOCK for log in logs)
    where = f"{host.name} at {world.now_ns / SECOND_NS:.0f} s"
    if len(logs) > objects:
        yield f"{where}: {len(logs)} logs for {objects} publications and images"
    if taken > held.storage.used_bytes + len(logs) * _LOG_EXTRA:
        yield f"{where}: logs take {taken} bytes, {held.storage.used_bytes} are accounted for"
    if not 0 <= held.storage.used_bytes <= held.storage.budget_bytes:
        yield f"{where}: {held.storage.used_bytes} bytes of {held.storage.budget_bytes}"
    publications = sum(
        len(publisher.ledgers) for publisher in world.publishers if publisher.host is host
    )
    images = _IMAGES_EACH * sum(
        len(publisher.ledgers)
        for publisher in world.publishers
        for subscriber in world.subscribers
        if subscriber.host is host and same_stream(publisher.script, subscriber.script)
    )
    if len(held.publications) > publications or len(held.images) > images:
        yield (
            f"{where}: {len(held.publications)} publications and {len(held.images)} images, "
            f"{publications} and {images} at most"
        )
    waiting = len(held.timers)
    most = _TIMERS_EACH * (1 + objects + len(held.clients) + len(held.subscriptions))
    if waiting > most:
        yield f"{where}: {waiting} timers for {objects} publications and images"
