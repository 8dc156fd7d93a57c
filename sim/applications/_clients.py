# SPDX-License-Identifier: Apache-2.0
"""The client's classes for simulated applications. While an application waits, the simulation
continues. An empty poll or a refused offer takes some virtual time; otherwise, virtual time would
not advance while an application polls in a loop without waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.client._batches import Block
from penstock.client._claim import Claim
from penstock.client._classes import ClientClasses
from penstock.client._image import Image
from penstock.client._parking import Parking
from penstock.client._publication import Publication
from penstock.client._publication_facts import BatchResult
from penstock.client._subscription import Subscription
from penstock.core import client as core
from penstock.sim.applications.app import NEVER_NS, SimulationError, current

#: Virtual time of a call that was refused or found nothing.
SPIN_NS: Final = 10_000


def _sent(count: int) -> None:
    """Count messages that the application has sent; a condition of the test may now be true."""
    app = current()
    if app is not None and count > 0:
        app.sent += count
        app.notice()


def _spin() -> None:
    app = current()
    if app is not None:
        app.spend(SPIN_NS)


class SimParking(Parking):
    """Replaces :class:`Parking` in the client of a simulated application: the application waits in
    virtual time."""

    def until(
        self, happened: Callable[[], bool], timeout_s: float | None,
        rest_ns: Callable[[], int] = lambda: 0,
    ) -> bool:
        """See :meth:`Parking.until`; the time-out is in virtual time. The function ``rest_ns``
        measures on the real clock, so this method ignores ``rest_ns``.
        """
        app = current()
        if app is None:
            if happened():
                return True
            raise SimulationError(
                "only a simulated application can wait for its client: start the function with "
                "Simulation.start()"
            )
        due_ns = NEVER_NS if timeout_s is None else app.now_ns + int(timeout_s * 1e9)
        while True:
            handle = self._handle
            ticket = core.client_ticket(handle)
            if happened():
                return True
            self._check()
            if app.now_ns >= due_ns:
                return False
            app.hand_over([(handle, ticket)], due_ns)


class SimClaim(Claim):
    """A claim of a simulated application."""

    __slots__ = ()

    def commit(self) -> int:
        """See :meth:`Claim.commit`."""
        position = super().commit()
        _sent(1)
        return position


class SimPublication(Publication):
    """A publication of a simulated application. A refused offer takes some virtual time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._take_clock()

    def _renew(self, ready: Any) -> None:
        super()._renew(ready)
        self._take_clock()

    def _take_clock(self) -> None:
        app = current()
        if app is not None and self._handle is not None:
            app.simulation.set_clock(self._handle)

    def offer(
        self, data: Any, *, reserved_value: int = 0, never_throttle: bool = False
    ) -> int:
        """See :meth:`Publication.offer`."""
        position = super().offer(
            data, reserved_value=reserved_value, never_throttle=never_throttle
        )
        if position <= 0:
            _spin()
        else:
            _sent(1)
        return position

    def try_claim(self, length: int) -> SimClaim:
        """See :meth:`Publication.try_claim`."""
        claim = SimClaim(super().try_claim(length)._native, length)
        if not claim:
            _spin()
        return claim

    def _offer_block(self, block: Block, first: int) -> BatchResult:
        result = super()._offer_block(block, first)
        if result.position <= 0:
            _spin()
        return result

    def _offer_native(self, *args: Any) -> core.BatchOutcome:
        outcome = super()._offer_native(*args)
        _sent(outcome.accepted)
        return outcome

    @property
    def is_connected(self) -> bool:
        """See :attr:`Publication.is_connected`."""
        connected = super().is_connected
        if not connected:
            _spin()
        return connected


def _counting(poll: Callable[[Any, Any, int, int], int]) -> Callable[[Any, Any, int, int], int]:
    """A poll that charges the application for each message, or for finding none. Conditions of the
    test see the messages of the previous poll, which the application has processed."""

    def counted(handle: Any, messages: Any, limit: int, flags: int) -> int:
        app = current()
        if app is not None:
            app.notice()
        count = poll(handle, messages, limit, flags)
        if app is not None:
            app.received += max(count, 0)
            app.spend(count * app.message_ns if count > 0 else SPIN_NS)
        return count

    return counted


class SimSubscription(Subscription):
    """A subscription of a simulated application. A poll takes some virtual time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._poll = _counting(self._poll)


class SimImage(Image):
    """An image of a simulated application. A poll takes some virtual time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._poll = _counting(self._poll)


CLASSES: Final = ClientClasses(
    publication=SimPublication, subscription=SimSubscription, image=SimImage, parking=SimParking
)
