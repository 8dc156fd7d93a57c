# SPDX-License-Identifier: Apache-2.0
"""The images of a subscription with ``ps-fanin`` together hold at most one receiver window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.config import uri
from penstock.sim.scenario import SECOND_NS

if TYPE_CHECKING:
    from penstock.sim.world import World
    from penstock.sim.world.apps import Subscriber

#: Share of an image at least, and what a datagram adds beyond a limit, in bytes of each image.
_EACH: Final = 3 * 1408
#: Time in which the conductor divides the window after an image has joined.
_SETTLED_NS: Final = SECOND_NS // 2


class FanIn:
    """The subscriptions of a scenario that divide a receiver window."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._windows: list[tuple[Subscriber, int]] = []
        for subscriber in world.subscribers:
            channel = uri.parse(subscriber.script.channel)
            if channel.ps_fanin and not channel.is_ipc and channel.rcv_wnd:
                self._windows.append((subscriber, channel.rcv_wnd))

    def check(self) -> Iterator[str]:
        """Return the violations at this moment."""
        for subscriber, window in self._windows:
            host = subscriber.host
            if not host.running or not subscriber.available or (
                self._world.now_ns - subscriber.available[-1][0] < _SETTLED_NS
            ):
                continue
            sessions = {session for _, session in subscriber.available}
            found = [
                (subscriber.joined[image.session_id], host.driver.image_status(image.id))
                for image in host.conductor.snapshot().images if image.session_id in sessions
            ]
            # The first window that an image granted stays granted after the division.
            held = [
                status.high_water - status.slowest_subscriber for joined, status in found
                if status.slowest_subscriber >= joined + window
            ]
            if len(held) == len(found) > 1 and sum(held) > window + len(held) * _EACH:
                yield (
                    f"subscriber {self._world.subscribers.index(subscriber)} has {sum(held)} bytes "
                    f"of {len(held)} images unread, its window has {window}"
                )
