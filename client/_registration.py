# SPDX-License-Identifier: Apache-2.0
"""Create the requests that add or remove an object at the daemon, and record them."""

from __future__ import annotations

from operator import index
from typing import Any, Final, TypeAlias

import attrs

from penstock.client._port import DriverPort, Lease, Request
from penstock.config.protocol import control
from penstock.core import client as core
from penstock.core.errors import InvalidArgument

Addition: TypeAlias = control.AddPublication | control.AddSubscription | control.AddCounter

_MAX_CHANNEL: Final = control.MAX_CHANNEL_CHARS


@attrs.frozen(kw_only=True)
class Registration:
    """Record of a request that added a publication, subscription or counter at the daemon. After
    the daemon's restart, the client repeats the recorded request."""

    registration_id: int
    request: Addition
    destinations: tuple[str, ...] = ()

    def after(self, request: control.AddDestination | control.RemoveDestination) -> Registration:
        """Return a copy of the record that includes the change of ``request``: one destination
        more, or one less."""
        if isinstance(request, control.AddDestination):
            destinations = (*self.destinations, request.channel)
        else:
            destinations = tuple(d for d in self.destinations if d != request.channel)
        return attrs.evolve(self, destinations=destinations)


def client_params(lease: Lease) -> core.ClientParams:
    return core.ClientParams(
        directory=str(lease.directory),
        client_id=lease.client_id,
        client_slot=lease.client_slot,
        sender_wake_fd=lease.sender_wake_fd,
        receiver_wake_fd=lease.receiver_wake_fd,
        watch_fd=lease.watch_fd,
    )


def add_again(port: DriverPort, request: Addition, timeout_s: float) -> Any:
    """Add an object again at a restarted daemon; return the daemon's reply."""
    if isinstance(request, control.AddPublication):
        return port.add_publication(request, timeout_s)
    if isinstance(request, control.AddSubscription):
        return port.add_subscription(request, timeout_s)
    return port.add_counter(request, timeout_s)


def removal_of(request: Addition, registration_id: int) -> Request:
    """Return a request to remove the object that was added with ``request``."""
    if isinstance(request, control.AddPublication):
        return control.RemovePublication(registration_id=registration_id)
    if isinstance(request, control.AddSubscription):
        return control.RemoveSubscription(registration_id=registration_id)
    return control.RemoveCounter(registration_id=registration_id)


def checked_channel(channel: str) -> str:
    if not isinstance(channel, str):
        raise InvalidArgument(
            f"a channel is text such as 'aeron:ipc', not {channel!r} "
            f"({type(channel).__name__}); the channel comes before the stream id"
        )
    if not 0 < len(channel) <= _MAX_CHANNEL:
        raise InvalidArgument(f"a channel URI has 1 to {_MAX_CHANNEL} characters: {len(channel)}")
    return channel


def checked_i32(value: int, what: str = "a stream id") -> int:
    try:
        number = index(value)
    except TypeError:
        raise InvalidArgument(
            f"{what} is a whole number, not {value!r} ({type(value).__name__})"
        ) from None
    if not -(2**31) <= number < 2**31:
        raise InvalidArgument(f"{what} has 32 bits, from {-(2**31)} to {2**31 - 1}: {number}")
    return number
