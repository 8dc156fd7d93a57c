# SPDX-License-Identifier: Apache-2.0
"""Relays in the simulator: processes that run the product's relay (``penstock/client/_relay.py``)
in virtual time.

The relay's connection calls the simulated daemon, and the relay takes its turns when its client is
woken. C code notes each message that a target's publication accepts, and compares the message with
the source (``sim/native/world/ps_sim_relay.c``).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from penstock.client._client import Client
from penstock.client._port import PortState, RelayPort
from penstock.client._publication import Publication
from penstock.client._relay import Relay, default_name
from penstock.core import client as core
from penstock.core.driver_types import NEVER_NS
from penstock.core.errors import PenstockError, RelayLoop
from penstock.sim.core import SIM, SimWorld
from penstock.sim.scenario import RelayScript
from penstock.sim.world.host import Host

if TYPE_CHECKING:
    from penstock.client._image import Image
    from penstock.client._relay_leg import Leg
    from penstock.client._relay_state import Cell
    from penstock.client._restart import Gap

_LOG: Final = logging.getLogger("penstock.relay")
#: Virtual time of a turn that relayed something.
_TURN_NS: Final = 10_000
#: Longest wait between two turns, as in :meth:`Relay.run`.
_SLICE_NS: Final = 250_000_000


class _Killed(BaseException):
    """Ends the turn in which the process of a relay is killed."""


class _Waits(BaseException):
    """Ends the turn in which a relay makes a request while no daemon runs. A real relay waits in
    this request for the next daemon."""


@attrs.frozen
class _Session:
    """One session that the relay publishes."""

    app: RelayApp
    native: SimWorld
    publisher: int
    ledger: int

    def offering(self) -> None:
        """Called before each offer."""
        self.app.reach(0)

    def accepted(self, position: int, data: bytes, reserved_value: int) -> None:
        self.native.relayed(self.publisher, position, data, reserved_value)
        self.app.reach(1)


class RelayPublication(Publication):
    """A publication of a simulated relay. It notes each message that it accepts."""

    _session: _Session | None = None

    def note_in(self, session: _Session) -> None:
        self._session = session
        session.native.set_clock(self._open())

    def offer(self, data: Any, *, reserved_value: int = 0, never_throttle: bool = False) -> int:
        """See :meth:`Publication.offer`."""
        session = self._session
        assert session is not None
        session.offering()
        position = super().offer(
            data, reserved_value=reserved_value, never_throttle=never_throttle
        )
        if position > 0:
            session.accepted(position, bytes(data), reserved_value)
        else:
            session.native.relay_refused(session.publisher)
        return position


class _SimRelay(Relay):
    """The product's relay with a client of a simulated daemon."""

    def __init__(self, app: RelayApp) -> None:
        script = app.script
        self._app = app
        self.sessions: dict[int, _Session] = {}     # by image
        super().__init__(
            script.source, script.source_stream, script.target, script.target_stream,
            name=app.name, directory=app.host.directory, linger_s=script.linger_ns / 1e9,
            timeout_s=1.0, reattach_timeout_s=1.0,
        )

    def refused(self) -> list[Image]:
        """The images that it has rejected and that have not ended."""
        return self._rejected

    def _connect(self, directory: Path, timeout_s: float, reattach_s: float) -> RelayPort:
        if not self._files.plain["client"]:
            self._files.plain["relay_id"] = self._app.new_id()
        return self._app.host.attach(
            f"relay {self._name}", linger_ns=self._linger_ns, returning=self._returning()
        )

    def _open_client(self, port: RelayPort, timeout_s: float) -> Client:
        client = Client(port, timeout_s=timeout_s, library=SIM)
        client._classes = attrs.evolve(client._classes, publication=RelayPublication)
        return client

    def _begin(self, image: Image) -> None:
        if self._client._port.state is PortState.AWAY:
            self._arrived.appendleft(image)
            raise _Waits
        super()._begin(image)

    def _end(self, image_id: int) -> None:
        if self._client._port.state is PortState.AWAY:
            self._ended.appendleft(image_id)
            raise _Waits
        super()._end(image_id)

    def _open(self, image: Image, cell: Cell) -> Leg:
        leg = super()._open(image, cell)
        self._note(leg)
        return leg

    def _reopen(self, image: Image, known: dict[str, Any]) -> Leg:
        leg = super()._reopen(image, known)
        self._note(leg)
        return leg

    def _note(self, leg: Leg) -> None:
        session = self._app.session(leg)
        self.sessions[leg.image.correlation_id] = session
        publication = leg.publication
        assert isinstance(publication, RelayPublication)
        publication.note_in(session)

    def _on_gap(self, gap: Gap) -> None:
        super()._on_gap(gap)
        for image_id, leg in self._legs.items():
            # A gap between the images of a session concerns no image that is open.
            if not leg.image.is_closed and leg.image.session_id == gap.session_id:
                assert gap.to_position is not None
                self._app.native.relay_gap(
                    self.sessions[image_id].ledger, gap.from_position, gap.to_position,
                    gap.messages, may_not_know=self._app.lost_counts,
                )

    def open_sessions(self) -> Iterator[tuple[Image, Publication, int]]:
        """The images that the relay reads, with the publication and the ledger of each."""
        for image_id, leg in self._legs.items():
            if not leg.image.is_closed:
                yield leg.image, leg.publication, self.sessions[image_id].ledger

    def check_released(self) -> None:
        for image, _, ledger in self.open_sessions():
            self._app.native.relay_released(ledger, image.released_position)

    def forget_memory(self) -> None:
        """Write no more into shared memory."""
        for image in self._subscription._images:
            image._handle = None

    def die(self) -> None:
        """End like a killed process: the kernel closes its connection and releases its lock."""
        self._closed = True
        self._client._port.close()
        self._files.close(remove=False)


class RelayApp:
    """An application that runs a relay. After a death its next process takes over."""

    def __init__(
        self, script: RelayScript, host: Host, native: SimWorld, number: int, rng: random.Random
    ) -> None:
        self.script = script
        self.number = number
        self.native = native
        self.name = default_name(
            script.source, script.source_stream, script.target, script.target_stream
        )
        self.ledgers: list[int] = []    # one for each session that it published
        self.loop = ""                  # reason for which it ended: relays form a circle
        self.fault = ""                 # other error that ended it
        self.forgotten: set[int] = set()        # sessions whose rejection a daemon has forgotten
        self.refused = 0                # sessions of its source that it refused
        self.deaths = 0
        #: Sessions of its target that ended without a notice, because its host died.
        self.abandoned: set[int] = set()
        self._published: set[int] = set()       # sessions
        self._host = host
        self._rng = rng
        self._relay: _SimRelay | None = None
        self._offers = 0                # that were accepted
        self._kill_points = set(script.kill_points)
        self._paused = False
        self._waits = False             # for a daemon, to start
        self._due_ns = NEVER_NS
        self._ticket: tuple[core.ClientHandle, int] | None = None

    # ---- facts -----------------------------------------------------------------------------------

    @property
    def host(self) -> Host:
        return self._host

    @property
    def is_open(self) -> bool:
        return self._relay is not None

    @property
    def relay(self) -> Relay | None:
        """The relay of the present process; None: no process runs."""
        return self._relay

    @property
    def lost_counts(self) -> bool:
        """Whether a gap may have no number: a daemon that adopts an IPC stream of a dead one cannot
        take over its count of messages."""
        return self._host.script.adopt and self.script.source.startswith("aeron:ipc")

    @property
    def is_over(self) -> bool:
        """Whether the relay has ended permanently."""
        return bool(self.loop or self.fault)

    def sessions(self) -> list[tuple[Image, Publication, int]]:
        """The images that the relay reads, with the publication and the ledger of each."""
        return [] if self._relay is None else list(self._relay.open_sessions())

    # ---- for the relay ---------------------------------------------------------------------------

    def new_id(self) -> int:
        return self._rng.getrandbits(63) | 1

    def session(self, leg: Leg) -> _Session:
        """Return what notes the messages of a leg."""
        publication, image, script = leg.publication, leg.image, self.script
        self._published.add(publication.session_id)
        ledger = self.native.add_relayed(
            (publication.session_id, script.target_stream),
            (image.session_id, script.source_stream),
            relay=self.number, join_position=image.join_position,
        )
        if ledger not in self.ledgers:
            self.ledgers.append(ledger)
        publisher = self.native.add_publisher(
            publication._open(), host=self.host.index, ledger=ledger, sizes=(0, 0), count=0,
            start_ns=0, interval_ns=0,
        )
        self.native.detach_publisher(publisher)
        return _Session(self, self.native, publisher, ledger)

    def reach(self, place: int) -> None:
        """Die if the script says so.

        :param place: 0: before an offer; 1: after it was accepted.
        """
        point = 2 * self._offers + place
        self._offers += place
        if point in self._kill_points and self._relay is not None:
            self._kill_points.remove(point)
            self._relay.check_released()
            self._relay.forget_memory()
            raise _Killed

    # ---- time ------------------------------------------------------------------------------------

    @property
    def due_ns(self) -> int:
        """Time of its next turn, if nothing wakes it before."""
        return self._due_ns if self._runs else NEVER_NS

    @property
    def _runs(self) -> bool:
        """Whether it can take a turn. A relay continues while only its daemon is dead."""
        return not self._paused and (self._host.running or self._host.script.adopt)

    def wait(self) -> None:
        """Let the next run of the world end when the relay is woken."""
        if self._ticket is not None and self._runs:
            self.native.wait_for(*self._ticket)

    def act(self) -> None:
        """Take a turn if it is due, or if the relay was woken."""
        woken = self._ticket is not None and core.client_ticket(self._ticket[0]) != self._ticket[1]
        late = self._due_ns <= self._host.now_ns
        if self._relay is None or not self._runs or not (woken or late):
            return
        self._ticket = None
        self._note_forgotten(self._relay)
        try:
            moved = self._turn(self._relay)
        except _Killed:
            self.kill()
            return
        except _Waits:
            self._due_ns = self._host.now_ns + _SLICE_NS
        except RelayLoop as error:
            self.loop = str(error)
            self._end()
        except PenstockError as error:
            self.fault = f"{type(error).__name__}: {error}"
            self._end()
        else:
            pause_ns = max(self.script.interval_ns, _TURN_NS) if moved else _SLICE_NS
            self._due_ns = self._host.now_ns + pause_ns
        self.native.touch(self._host.index)

    def _note_forgotten(self, relay: _SimRelay) -> None:
        refused = {image.correlation_id: image.session_id for image in relay.refused()}
        if refused and self._host.running:
            self.forgotten |= {
                refused[image.id] for image in self._host.conductor.snapshot().images
                if image.id in refused and image.rejection is None
            }

    def _turn(self, relay: _SimRelay) -> bool:
        """As :meth:`Relay.run`: the relay waits if two turns in a row find nothing. Its log is off,
        because each generated scenario would print it."""
        _LOG.disabled = True
        try:
            return self._step(relay)
        finally:
            _LOG.disabled = False

    def _step(self, relay: _SimRelay) -> bool:
        moved = relay.step()
        if not moved:
            handle = relay.client._native()
            ticket = core.client_ticket(handle)
            moved = relay.step()
            if not moved:
                self._ticket = handle, ticket
        relay.check_released()
        self.refused = max(self.refused, relay.statistics().refused)
        return moved

    # ---- life ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start a process; without a daemon, it waits for one."""
        self._waits = not self._host.running
        if self._relay is None and self._host.running and not self.is_over:
            _LOG.disabled = True
            try:
                self._relay = _SimRelay(self)
            finally:
                _LOG.disabled = False
            self._due_ns = self._host.now_ns

    def pause(self, paused: bool) -> None:
        self._paused = paused
        self._due_ns = self._host.now_ns

    def resume(self) -> None:
        """A new daemon has adopted the streams of a dead one: take a turn, or start if the process
        waits for a daemon."""
        if self._relay is not None:
            self._due_ns = self._host.now_ns
        elif self._waits:
            self.open()

    def kill(self) -> None:
        """End the process as by SIGKILL."""
        relay, self._relay = self._relay, None
        if relay is not None:
            self.deaths += 1
            relay.die()
            self._ticket = None
            self._due_ns = self._host.now_ns + self.script.restart_ns

    def restart_if_due(self) -> None:
        """Start the next process after a death."""
        if self._relay is None and self._due_ns <= self._host.now_ns:
            self._due_ns = NEVER_NS
            self.open()

    def close(self) -> None:
        """End the relay: as by Ctrl-C, or with its host."""
        if self._host.running:
            self._end()
        else:
            self.abandoned |= self._published
            self.kill()
        self._due_ns = NEVER_NS

    def _end(self) -> None:
        relay, self._relay = self._relay, None
        self._ticket, self._due_ns = None, NEVER_NS
        if relay is not None:
            relay.close()
