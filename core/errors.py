# SPDX-License-Identifier: Apache-2.0
"""The error codes of the C core, and for each code the exception that Python raises
(:mod:`penstock.errors`)."""

from __future__ import annotations

from typing import Final

from penstock.errors import (
    ChannelRefused,
    ClaimLost,
    ClaimRefused,
    ClosedError,
    ConfigurationError,
    CorruptLogError,
    CreditReleased,
    DaemonGone,
    DaemonNotRunning,
    DirectoryInUseError,
    ForkedError,
    InvalidArgument,
    MessageTooLong,
    NativeError,
    NativeResourceError,
    NotConnected,
    PenstockError,
    PublicationFailed,
    RelayLoop,
    StorageError,
    TimeoutExpired,
    VersionMismatch,
    WithholdTimeout,
)

__all__ = [
    "ChannelRefused",
    "ClaimLost",
    "ClaimRefused",
    "ClosedError",
    "ConfigurationError",
    "CorruptLogError",
    "CreditReleased",
    "DaemonGone",
    "DaemonNotRunning",
    "DirectoryInUseError",
    "ForkedError",
    "InvalidArgument",
    "MessageTooLong",
    "NativeError",
    "NativeResourceError",
    "NotConnected",
    "PenstockError",
    "PublicationFailed",
    "RelayLoop",
    "StorageError",
    "TimeoutExpired",
    "VersionMismatch",
    "WithholdTimeout",
    "error_name",
    "native_error",
]

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
    """Return the name of a ``ps_error_code``."""
    return _NAMES.get(code, f"error {code}")


def native_error(code: int, text: str = "", *, operation: str = "") -> PenstockError:
    """Return the exception for a negative ``ps_error_code`` of the core.

    ``text`` is the result of ``ps_last_error()`` after the failure, and ``operation`` names the
    failed operation. An error of a socket becomes a ``ChannelRefused``, and a full file system
    becomes a ``StorageError``; both have a code of the control protocol.
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
