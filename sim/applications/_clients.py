# SPDX-License-Identifier: Apache-2.0
"""The client's classes for simulated applications. While an application waits, the simulation
continues. A call that returns no result (an empty poll, a refused offer) takes some virtual time,
so a polling loop cannot stop the virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.client._classes import ClientClasses
from penstock.client._image import Image
from penstock.client._parking import Parking
from penstock.client._publication import Publication
from penstock.client._subscription import Subscription
from penstock.core import client as core
from penstock.sim.applications.app import NEVER_NS, SimulationError, current

#: Virtual time of a call that was refused or found nothing.
SPIN_NS: Final = 10_000


def _spin() -> None:
    app = current()
    if app is not None:
        app.spend(SPIN_NS)


class SimParking(Parking):
    """The object through which a simulated application waits."""

    def until(
        self, happened: Callable[[], bool], timeout_s: float | None,
        rest_ns: Callable[[], int] = lambda: 0,
    ) -> bool:
        """See :meth:`Parking.until`; virtual time. ``rest_ns`` returns a duration on the real
        clock, so this method ignores ``rest_ns``.
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
        return position

    @property
    def is_connected(self) -> bool:
        """See :attr:`Publication.is_connected`."""
        connected = super().is_connected
        if not connected:
            _spin()
        return connected


def _counting(poll: Callable[[Any, Any, int, int], int]) -> Callable[[Any, Any, int, int], int]:
    """A poll that charges the application for each message, or for finding none."""

    def counted(handle: Any, messages: Any, limit: int, flags: int) -> int:
        count = poll(handle, messages, limit, flags)
        app = current()
        if app is not None:
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
