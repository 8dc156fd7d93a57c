# SPDX-License-Identifier: Apache-2.0
"""Simulated receivers that violate the rules of a group, and the datagrams that they send.

A misbehaving receiver reads no datagrams: it gets the position of a stream from the publisher's
driver. The receiver stores no data, and sends only the datagrams of this module. A misbehaving
receiver must not stop a sender that waits for its slowest receiver.
"""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Final

from penstock.config import uri
from penstock.core.driver_types import Address
from penstock.daemon.conductor.snapshot import PublicationSnapshot
from penstock.sim.scenario import MisfitScript, host_ip
from penstock.sim.world.apps import Publisher

if TYPE_CHECKING:
    from penstock.sim.world import World

_DATA: Final = struct.Struct("<iBBHiiiiq")
_DATA_TYPE: Final = 1
_UNFRAGMENTED: Final = 0xC0
_SM: Final = struct.Struct("<iBBHiiiiiqq")
_SM_TYPE: Final = 3
_SETUP_FLAG: Final = 0x80
_EOS_FLAG: Final = 0x40
_PORT: Final = 45000
_PORTS: Final = 10_000
_OPEN: Final = 65536                    # a window that any stream has room for: T is twice that
#: Turns of one that joins before it misbehaves, and of one that comes back.
_CALM: Final = 3
_AWAY: Final = 40


class Misfit:
    """One receiver that violates the rules. The receiver acts once in each interval."""

    def __init__(self, script: MisfitScript, world: World, rng: random.Random) -> None:
        self._script = script
        self._world = world
        self._rng = rng
        self._id = rng.randrange(1, 2**62)
        self._port = _PORT
        self._turn = 0
        self._stuck = -1                # the position that it states for ever

    def act(self) -> None:
        """Send the next datagram, if the stream exists."""
        for publisher in self._world.publishers:
            running = publisher.host.running and publisher.is_open
            if running and publisher.script.stream_id == self._script.stream_id:
                self._say(publisher)
                return

    def _say(self, publisher: Publisher) -> None:
        found = [
            p for p in publisher.host.publications() if p.session_id == publisher.session_id
        ]
        if not found:
            return
        target = _control_of(publisher.script.channel)
        if target is None:
            return
        at = publisher.host.driver.publication_status(found[0].id).consumer_position
        turn = self._turn
        self._turn += 1
        match self._script.kind:
            case "never joins":
                self._send(found[0], target, at, _SETUP_FLAG)
            case "random ids":
                self._id = self._rng.randrange(1, 2**62)
                self._send(found[0], target, at, _SETUP_FLAG)
            case "crowd":
                self._id = self._rng.randrange(1, 2**62)
                self._port = _PORT + self._rng.randrange(_PORTS)
                self._send(found[0], target, at, _SETUP_FLAG)
            case "plain":
                self._send(found[0], target, at, 0)
            case "silent":
                self._silent(found[0], target, at, turn % _AWAY)
            case "leaves":
                flags = (_SETUP_FLAG, 0, _EOS_FLAG)[turn % 3]
                self._send(found[0], target, at, flags)
            case "shut":
                self._shut(found[0], target, at, turn)
            case "frozen":
                self._frozen(found[0], target, at, turn % (_CALM * _AWAY))
            case "forges":
                self._forge(found[0], publisher.script.channel, at)

    def _silent(
        self, publication: PublicationSnapshot, target: Address, at: int, turn: int
    ) -> None:
        """Joins, and says no more; after a while again."""
        if turn < 2:
            self._send(publication, target, at, _SETUP_FLAG if turn == 0 else 0)

    def _shut(
        self, publication: PublicationSnapshot, target: Address, at: int, turn: int
    ) -> None:
        """Joins, and from then on has room for nothing."""
        if turn < 2:
            self._stuck = at
            self._send(publication, target, at, _SETUP_FLAG if turn == 0 else 0)
        else:
            self._send(publication, target, self._stuck, 0, window=0)

    def _frozen(
        self, publication: PublicationSnapshot, target: Address, at: int, turn: int
    ) -> None:
        """Joins and keeps up, is stopped with all its machine, and goes on where it was."""
        if turn < _CALM * _CALM:
            self._stuck = at
            self._send(publication, target, at, _SETUP_FLAG if turn == 0 else 0)
        elif turn > _AWAY * (_CALM - 1):
            self._send(publication, target, self._stuck, 0)

    def _forge(self, publication: PublicationSnapshot, channel: str, at: int) -> None:
        """Send a heartbeat in the sender's name, one to two terms ahead of the stream."""
        host = self._world.hosts[self._script.host]
        endpoint = uri.parse(channel).endpoint
        sources = [
            image.source for image in host.conductor.snapshot().images
            if image.session_id == publication.session_id
        ]
        if endpoint is None or endpoint.ip is None or not sources:
            return
        term = publication.log.term_length
        self._stuck = max(self._stuck, at // term * term + 2 * term)
        term_id = (publication.initial_term_id + self._stuck // term) & 0xFFFFFFFF
        data = _DATA.pack(
            0, 0, _UNFRAGMENTED, _DATA_TYPE, 0, publication.session_id, publication.stream_id,
            term_id - (term_id >> 31 << 32), 0,
        )
        target = Address(ip=str(endpoint.ip), port=endpoint.port)
        self._world.network.inject(host.index, sources[0], target, data, self._world.now_ns)
        self._world.native.touch(host.index)

    def _send(
        self, publication: PublicationSnapshot, target: Address, position: int, flags: int, *,
        window: int | None = None,
    ) -> None:
        term = publication.log.term_length
        term_id = (publication.initial_term_id + position // term) & 0xFFFFFFFF
        tag = publication.params.fc_group_tag
        data = _SM.pack(
            _SM.size, 0, flags, _SM_TYPE, publication.session_id, publication.stream_id,
            term_id - (term_id >> 31 << 32), position % term,
            min(_OPEN, term // 2) if window is None else window, self._id, tag,
        )
        host = self._script.host
        self._world.network.inject(
            host, Address(ip=host_ip(host), port=self._port), target, data, self._world.now_ns
        )
        publication_host = self._world.hosts[host]
        self._world.native.touch(publication_host.index)


def _control_of(channel: str) -> Address | None:
    """Where receivers of a group send status messages; None: the channel has one receiver."""
    parsed = uri.parse(channel)
    if parsed.control is not None and parsed.control.ip is not None:
        return Address(ip=str(parsed.control.ip), port=parsed.control.port)
    if not parsed.is_multicast or parsed.endpoint is None or parsed.endpoint.ip is None:
        return None
    return Address(ip=str(parsed.endpoint.ip + 1), port=parsed.endpoint.port)
