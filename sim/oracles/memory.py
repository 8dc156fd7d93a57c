# SPDX-License-Identifier: Apache-2.0
"""Memory stays bounded. The oracle that checks memory: a daemon must have exactly the files that
its publications, images and clients need. A daemon may have only objects that the scenario's
applications can have created. No timer or request of a daemon may concern an object that does not
exist. Idle streams must have released the memory that they do not need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import attrs

from penstock.core.driver_types import ImageStatus, PublicationStatus
from penstock.daemon.conductor.snapshot import ImageSnapshot, PublicationSnapshot
from penstock.daemon.conductor.state.machines import ImageState, PublicationState
from penstock.daemon.conductor.state.model import TERMS
from penstock.sim.scenario import SECOND_NS

if TYPE_CHECKING:
    from penstock.sim.world import World
    from penstock.sim.world.host import Host

_OFTEN_NS: Final = 20 * SECOND_NS
_SELDOM: Final = 100
_BLOCK: Final = 512
#: Bytes of a log in addition to its terms: metadata, and the page in which it begins.
_LOG_EXTRA: Final = 12 * 1024
#: Time for which an ended image is kept for slow readers; a reader rejoins no sooner.
_IMAGES_EACH: Final = 2
_TIMERS_EACH: Final = 16
_REQUEST_PARTS: Final = 32
#: Time from the idle time-out to the last step of a release; conductors may be slow.
_SLACK_NS: Final = SECOND_NS // 2


@attrs.define
class _Stand:
    """Position of a stream, and since when."""

    where: tuple[Any, ...]
    since_ns: int


class Memory:
    """Values that the oracle remembers from one check to the next."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stands: dict[tuple[int, int], _Stand] = {}    # by conductor and stream

    def check(self) -> Iterator[str]:
        """Return the violations at this moment. Until 20 s of virtual time, the method checks the
        daemons at each full second; later, every 100 s. At all other times, the method returns no
        violations."""
        world = self._world
        second, rest = divmod(world.now_ns, SECOND_NS)
        if rest == 0 and (world.now_ns <= _OFTEN_NS or second % _SELDOM == 0):
            for host in world.hosts:
                if host.running:
                    yield from _check(world, host)
                    if host.script.idle_ns > 0:
                        yield from self._look_for_rest(host)

    def _look_for_rest(self, host: Host) -> Iterator[str]:
        now_ns = self._world.now_ns
        held = host.conductor.snapshot()
        unblocked = any(name == "publication_unblocked" for _, name, _ in host.events)
        owners: list[PublicationSnapshot | ImageSnapshot] = [*held.publications, *held.images]
        for owner in owners:
            if owner.state not in (PublicationState.ACTIVE, ImageState.ACTIVE):
                continue
            status = host.status_of(owner)
            readers = tuple(
                host.counters(*(link.counter_id for link in owner.subscribers)).values()
            )
            where = (id(host.conductor), status, readers)
            stand = self._stands.setdefault((host.index, owner.id), _Stand(where, now_ns))
            if stand.where != where:
                self._stands[host.index, owner.id] = _Stand(where, now_ns)
            elif isinstance(status, ImageStatus) and (
                status.gaps > 0 or status.subscribers == 0
                or _is_full(status, owner.log.term_length)
            ):
                # Missing data may need another term; an image without a reader ends soon.
                continue
            elif not unblocked and \
                    now_ns - stand.since_ns > 2 * host.script.idle_ns + _SLACK_NS:
                known = (*readers, *host.indexed(owner))
                needed = _needed(owner, status, known, host.script.small_term_bytes)
                if owner.log.reserved_terms > needed:
                    yield (
                        f"{host.name} at {now_ns / SECOND_NS:.0f} s: session {owner.session_id} "
                        f"rests on {owner.log.reserved_terms} terms, {needed} are needed"
                    )


def _is_full(status: ImageStatus, term: int) -> bool:
    """Return whether an image has accepted all that it may, which only a stream with fc=nak does:
    up to a term beyond its slowest reader. The sender may have sent more, which the image drops and
    requests as soon as the reader moves, but only in steps of 1/32 term."""
    return status.high_water > status.slowest_subscriber + term - term // _REQUEST_PARTS


def _longest(term: int, mtu: int) -> int:
    """Of the padding that a sender may pass beyond a window: as long as the longest claim."""
    message = min(term // 8, 1 << 24)
    claim = message + -(-message // (mtu - 32)) * 32
    return min(max(-(-claim // 32) * 32, mtu), term // 2)


def _needed(
    owner: ImageSnapshot | PublicationSnapshot, status: ImageStatus | PublicationStatus,
    readers: tuple[int, ...], small: int | None,
) -> int:
    """Terms that a stream needs which stands there: those that may be read or sent again, and those
    that a limit reaches or half a term is received into.

    :param readers: where somebody reads on; a new daemon counts messages from an index entry on.
    """
    term = owner.log.term_length
    if isinstance(status, ImageStatus):
        end, high = status.high_water, status.high_water + term // 2
        low = min((status.slowest_subscriber, *readers))
    else:
        assert isinstance(owner, PublicationSnapshot)
        window = owner.plan.window_bytes if 0 < owner.plan.window_bytes <= term else term // 2
        end, high = status.producer_position, status.producer_position + window
        strategy = owner.plan.flow_control
        far = term // 4 if strategy is not None and strategy.strategy == "nak" else 0
        reach = min(term, term // 2 + far + _longest(term, owner.plan.mtu))
        again = 0 if owner.is_ipc else reach
        low = min((status.consumer_position - again, *readers))
    small_bytes = 1 << 20 if small is None else small
    least = end // term + (2 if term <= small_bytes else 1)
    return min(TERMS, max(-(-high // term), least) - max(low, 0) // term)


def _check(world: World, host: Host) -> Iterator[str]:
    held = host.conductor.snapshot()
    logs = [path.stat() for path in host.directory.glob("*/*.logbuffer")]
    objects = len(held.publications) + len(held.images)
    taken = sum(log.st_blocks * _BLOCK for log in logs)
    where = f"{host.name} at {world.now_ns / SECOND_NS:.0f} s"
    if len(logs) > objects:
        yield f"{where}: {len(logs)} logs for {objects} publications and images"
    if taken > held.storage_used_bytes + len(logs) * _LOG_EXTRA:
        yield f"{where}: logs take {taken} bytes, {held.storage_used_bytes} are accounted for"
    if not 0 <= held.storage_used_bytes <= held.storage_budget_bytes:
        yield f"{where}: {held.storage_used_bytes} bytes of {held.storage_budget_bytes}"
    written = [(each.host, each.script.stream_id, len(each.ledgers)) for each in world.publishers]
    written += [
        (each.host, each.script.target_stream, len(each.ledgers)) for each in world.relays
    ]
    read = [each.script.stream_id for each in world.subscribers if each.host is host]
    read += [each.script.source_stream for each in world.relays if each.host is host]
    publications = sum(sessions for where, _, sessions in written if where is host)
    images = _IMAGES_EACH * sum(
        sessions for _, stream_id, sessions in written for other in read if other == stream_id
    )
    if len(held.publications) > publications or len(held.images) > images:
        yield (
            f"{where}: {len(held.publications)} publications and {len(held.images)} images, "
            f"{publications} and {images} at most"
        )
    waiting = held.timers
    most = _TIMERS_EACH * (1 + objects + len(held.clients) + len(held.subscriptions))
    if waiting > most:
        yield f"{where}: {waiting} timers for {objects} publications and images"
