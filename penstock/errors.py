# SPDX-License-Identifier: Apache-2.0
"""Exceptions of penstock, by situation.

All derive from :class:`PenstockError`.  Back pressure is never an exception of ``offer``; a
refusal there is a small negative :class:`penstock.Offer`.  An exception means misuse, a broken
connection to the daemon, or a blocking call that ran out of time.
"""

from __future__ import annotations

from typing import Final


class PenstockError(Exception):
    """Base of every exception that penstock raises on purpose.  The text is one line that says what
    was wrong, with what value, and where it can be said, what to do."""


class ConfigurationError(PenstockError):
    """A configuration file, option or URI parameter is wrong; names key, value and what is
    accepted."""


class DirectoryInUseError(PenstockError):
    """A live daemon owns the directory."""


class DaemonNotRunning(PenstockError):
    """No daemon answers in the directory."""


class DaemonGone(PenstockError):
    """The daemon died or stopped while this client was connected to it."""


class VersionMismatch(PenstockError):
    """A file or a peer speaks another version, or the directory is not penstock's."""


class ChannelRefused(PenstockError):
    """The daemon refused a request.

    ``code`` is one of :data:`penstock.config.protocol.control.ERROR_CODES`, e.g.
    ``invalid_channel``.
    """

    def __init__(self, message: str, *, code: str = "internal") -> None:
        super().__init__(message)
        self.code = code


class StorageError(ChannelRefused):
    """Shared memory cannot hold what was asked; the text has the bytes needed and available."""

    def __init__(self, message: str, *, code: str = "storage") -> None:
        super().__init__(message, code=code)


class InvalidArgument(PenstockError, ValueError):
    """An argument is out of range or of the wrong shape."""


class MessageTooLong(PenstockError, ValueError):
    """A message exceeds the stream's limit, which the text states."""


class ForkedError(PenstockError):
    """A handle was used in a child of the process that opened it. Connect again in the child."""


class ClosedError(PenstockError):
    """The client, publication, subscription, image or batch was closed or released before."""


class NotConnected(PenstockError):
    """No receiver is there, and the caller chose not to wait for one."""


class ClaimRefused(PenstockError):
    """``with`` on a claim that was refused; ``code`` is the (negative) offer code."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


class ClaimLost(PenstockError):
    """The daemon padded over a claim that stayed open too long: the message will not be sent."""


class PublicationFailed(PenstockError):
    """A publication can carry no more: it was failed by its policy, or reached the end of its
    positions.  ``code`` is the (negative) offer code."""

    def __init__(self, message: str, *, code: int) -> None:
        super().__init__(message)
        self.code = code


class CorruptLogError(PenstockError):
    """Shared memory holds an impossible value; the stream is stopped at that position."""


class TimeoutExpired(PenstockError, TimeoutError):
    """A blocking call reached its ``timeout_s``."""


class NativeError(PenstockError, OSError):
    """A call into the native core failed; the text names the operation and the cause.

    ``native_code`` is the ``ps_error_code``.
    """

    def __init__(self, message: str, *, native_code: int = 0) -> None:
        super().__init__(message)
        self.native_code = native_code


class NativeResourceError(NativeError):
    """The core found no memory, no space or a queue that is full."""


# ps_error_code values of penstock.h, the contract between C and Python.
E_INVALID: Final = -1001
E_TOO_LONG: Final = -1002
E_NO_MEMORY: Final = -1003
E_SYSTEM: Final = -1004
E_VERSION: Final = -1005
E_CORRUPT: Final = -1006
E_TIMEOUT: Final = -1007
E_INTERRUPTED: Final = -1008
E_FORKED: Final = -1009
E_NO_SPACE: Final = -1010
E_AGAIN: Final = -1011
E_UNBLOCKED: Final = -1012
E_ADDRESS_IN_USE: Final = -1013
E_NO_INTERFACE: Final = -1014
E_NO_BUFFER: Final = -1015
E_PERMISSION: Final = -1016

_NAMES: Final[dict[int, str]] = {
    E_INVALID: "invalid argument",
    E_TOO_LONG: "message too long",
    E_NO_MEMORY: "out of memory",
    E_SYSTEM: "system call failed",
    E_VERSION: "wrong version or not a penstock file",
    E_CORRUPT: "shared memory is damaged",
    E_TIMEOUT: "timed out",
    E_INTERRUPTED: "interrupted by a signal",
    E_FORKED: "used in a forked child",
    E_NO_SPACE: "no space left",
    E_AGAIN: "queue full",
    E_UNBLOCKED: "the claim was padded over",
    E_ADDRESS_IN_USE: "address in use",
    E_NO_INTERFACE: "no such interface",
    E_NO_BUFFER: "socket buffer smaller than requested",
    E_PERMISSION: "permission denied",
}

_CLASSES: Final[dict[int, type[PenstockError]]] = {
    E_INVALID: InvalidArgument,
    E_TOO_LONG: MessageTooLong,
    E_VERSION: VersionMismatch,
    E_CORRUPT: CorruptLogError,
    E_TIMEOUT: TimeoutExpired,
    E_FORKED: ForkedError,
    E_UNBLOCKED: ClaimLost,
}

_REFUSALS: Final[dict[int, str]] = {
    E_ADDRESS_IN_USE: "address_in_use",
    E_NO_INTERFACE: "no_interface",
    E_NO_BUFFER: "socket_buffer",
    E_PERMISSION: "permission",
}


def error_name(code: int) -> str:
    """Words for a ``ps_error_code``."""
    return _NAMES.get(code, f"error {code}")


def native_error(code: int, text: str = "", *, operation: str = "") -> PenstockError:
    """The exception for a negative ``ps_error_code`` of the core.

    ``text`` is ``ps_last_error()`` at the place of the failure, ``operation`` what was being done.
    Socket troubles become :class:`ChannelRefused` and full file systems :class:`StorageError`, with
    the code that the control protocol uses for them.
    """
    detail = text or error_name(code)
    message = f"{operation}: {detail}" if operation else detail
    if code == E_NO_SPACE:
        return StorageError(message)
    if code in _REFUSALS:
        return ChannelRefused(message, code=_REFUSALS[code])
    cls = _CLASSES.get(code)
    if cls is not None:
        return cls(message)
    if code in (E_NO_MEMORY, E_AGAIN):
        return NativeResourceError(message, native_code=code)
    return NativeError(message, native_code=code)
