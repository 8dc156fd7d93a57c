# SPDX-License-Identifier: Apache-2.0
"""Errors of consumer groups."""

from __future__ import annotations

from penstock.config.protocol import control
from penstock.core.errors import PenstockError


class GroupError(PenstockError):
    """Base of what a :class:`penstock.client.GroupControl` raises."""


class DaemonUnreachable(GroupError):
    """No answer from the daemon at ``address`` within ``timeout_s``."""

    def __init__(self, message: str, *, address: str, timeout_s: float) -> None:
        super().__init__(message)
        self.address = address
        self.timeout_s = timeout_s


class NotAuthorised(GroupError):
    """The daemon does not take this client's key, or is not the one that ``server_key`` names."""


class GroupRefused(GroupError):
    """The daemon refused.

    ``code`` is one of :data:`penstock.config.protocol.control.ERROR_CODES`.
    """

    def __init__(self, message: str, *, code: str = "internal") -> None:
        super().__init__(message)
        self.code = code


class UnknownGroup(GroupRefused):
    """There is no such group: never opened, closed, or expired."""


class GroupOwned(GroupRefused):
    """Another reader has the group, as far as the daemon knows."""


class UnreliableStream(GroupRefused):
    """The flow control of the stream does not wait for slow receivers, so a group would lose."""


class RangeNotRetained(GroupError):
    """The log does not hold the range any more, or not yet: it holds ``lowest_readable`` up to
    ``end_position``; both are 0 when the log itself is gone."""

    def __init__(self, message: str, *, lowest_readable: int, end_position: int) -> None:
        super().__init__(message)
        self.lowest_readable = lowest_readable
        self.end_position = end_position


def refusal(failure: control.Failure) -> GroupRefused:
    """The exception that a Failure stands for."""
    kind = {
        "unknown_group": UnknownGroup, "owned": GroupOwned, "unreliable": UnreliableStream,
    }.get(failure.code, GroupRefused)
    return kind(failure.message, code=failure.code)
