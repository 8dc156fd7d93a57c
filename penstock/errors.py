# SPDX-License-Identifier: Apache-2.0
"""Exceptions of penstock. Each exception class can also be imported from :mod:`penstock`.

All derive from :class:`PenstockError`.  ``offer`` never raises an exception because of back
pressure. Under back pressure, ``offer`` returns a negative code, a :class:`penstock.Offer`. Typical
causes of an exception are a misused call, a dead daemon, and the time-out of a blocking call.
"""

from __future__ import annotations

from typing import Any


class PenstockError(Exception):
    """Base class of all exceptions that penstock raises. The text of an exception is one line. The
    text of an exception states the error, the wrong value and, if possible, the remedy."""


class ConfigurationError(PenstockError):
    """A configuration file, option or URI parameter is wrong; the exception's text names the key,
    the value and the accepted values."""


class DirectoryInUseError(PenstockError):
    """Another daemon is already running in the daemon directory."""


class DaemonNotRunning(PenstockError):
    """No daemon answers in the daemon directory."""


class DaemonGone(PenstockError):
    """The daemon died or stopped while this client was connected to it."""


class VersionMismatch(PenstockError):
    """This program cannot use the version of the daemon, or the version of a file in the daemon
    directory. This exception is also raised if the directory belongs to another program."""


class ChannelRefused(PenstockError):
    """The daemon refused a request.

    The attribute ``code`` is one of the strings in
    :data:`penstock.config.protocol.control.ERROR_CODES`, for example ``invalid_channel``.
    """

    def __init__(self, message: str, *, code: str = "internal") -> None:
        super().__init__(message)
        self.code = code


class StorageError(ChannelRefused):
    """Shared memory has no room for the requested log; the exception's text states how many bytes
    are needed and available."""

    def __init__(self, message: str, *, code: str = "storage") -> None:
        super().__init__(message, code=code)


class InvalidArgument(PenstockError, ValueError):
    """An argument of a call is out of range, or has the wrong type or form."""


class MessageTooLong(PenstockError, ValueError):
    """A message is longer than the stream allows; the exception's text states the limit."""


class ForkedError(PenstockError):
    """A process connected a client and then forked; the child process used this client or one of
    its objects. The child process must connect a client of its own."""


class ClosedError(PenstockError):
    """The call used a client, publication, subscription, image or batch that was already closed or
    released.
    """


class NotConnected(PenstockError):
    """No receiver is connected to the publication, and the caller chose not to wait for a
    receiver."""


class ClaimRefused(PenstockError):
    """A ``with`` statement was used on a claim that ``try_claim`` had refused. The attribute
    ``code`` is the negative offer code of the refusal."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


class ClaimLost(PenstockError):
    """The application neither committed nor aborted a claim in time. The daemon has therefore
    replaced the claimed space in the log by padding. The message is not sent."""


class PublicationFailed(PenstockError):
    """A publication accepts no further messages. There are two possible causes: the queue of a
    publication with ``ps-policy=error`` was full, or the stream has reached its maximum position.
    The attribute ``code`` is the (negative) offer code.
    """

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


class RelayLoop(PenstockError):
    """A relay refuses to forward a stream that has already passed this relay (the relays form a
    circle), or that has already passed eight relays."""


class CorruptLogError(PenstockError):
    """A subscriber has found an impossible value in the log in shared memory. The subscriber cannot
    read the stream beyond the position of the frame that has this value.
    """


class TimeoutExpired(PenstockError, TimeoutError):
    """A blocking call has reached its time-out ``timeout_s``."""


class WithholdTimeout(TimeoutExpired):
    """``withhold()`` stopped the publishers, but the readers did not release all messages within
    the time-out. ``withhold()`` has therefore granted the publishers credits again. The attribute
    ``outstanding`` has one :class:`penstock.client.Outstanding` for each image with outstanding
    messages."""

    def __init__(self, message: str, *, outstanding: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.outstanding = outstanding


class CreditReleased(PenstockError):
    """A credit was released twice."""


class SchemaMismatch(PenstockError, ValueError):
    """A message does not fit the schema of a typed stream."""


class RemoteError(PenstockError):
    """The handler of a server has raised an exception while it processed a request. The attribute
    ``type`` is the class name of the handler's exception, and ``text`` is the text of this
    exception."""

    def __init__(self, type: str, text: str) -> None:  # noqa: A002
        super().__init__(f"the server raised {type}: {text}")
        self.type = type
        self.text = text


class NativeError(PenstockError, OSError):
    """A call of the native core failed; the exception's text names the operation and the cause.

    ``native_code`` is the ``ps_error_code``.
    """

    def __init__(self, message: str, *, native_code: int = 0) -> None:
        super().__init__(message)
        self.native_code = native_code


class NativeResourceError(NativeError):
    """The core could not allocate memory or storage, or one of its queues is full."""


class GroupError(PenstockError):
    """Base class of the exceptions of :class:`penstock.client.GroupControl`."""


class DaemonUnreachable(GroupError):
    """The daemon with the TCP address ``address`` did not answer within ``timeout_s`` seconds."""

    def __init__(self, message: str, *, address: str, timeout_s: float) -> None:
        super().__init__(message)
        self.address = address
        self.timeout_s = timeout_s


class NotAuthorised(GroupError):
    """The daemon does not accept this client's CURVE key, or the daemon's own key differs from the
    expected key ``server_key``.
    """


class GroupRefused(GroupError):
    """The daemon refused.

    The attribute ``code`` is one of :data:`penstock.config.protocol.control.ERROR_CODES`.
    """

    def __init__(self, message: str, *, code: str = "internal") -> None:
        super().__init__(message)
        self.code = code


class UnknownGroup(GroupRefused):
    """The daemon has no consumer group with this name, channel and stream: the group was never
    opened, was closed, or has expired."""


class UnreliableStream(GroupRefused):
    """The flow control of the stream does not wait for slow receivers, so a consumer group on it
    could lose data."""


class GroupOwned(GroupRefused):
    """According to the daemon's records, another reader uses the consumer group."""


class AssignmentLost(GroupError):
    """A member of a consumer group no longer holds its batch, because the group has ended or
    expired, or the batch was released."""


class RangeNotRetained(GroupError):
    """The daemon's log no longer contains the requested range of positions, or does not contain it
    yet. The attributes ``lowest_readable`` and ``end_position`` state the range of positions that
    the log contains now. If the log no longer exists, ``lowest_readable`` and ``end_position`` are
    0."""

    def __init__(self, message: str, *, lowest_readable: int, end_position: int) -> None:
        super().__init__(message)
        self.lowest_readable = lowest_readable
        self.end_position = end_position
