# SPDX-License-Identifier: Apache-2.0
"""Encode control messages to bytes, and decode them.

:mod:`penstock.config.protocol.control` describes the form.

If a message is invalid, :func:`encode` and :func:`decode` raise :class:`ControlError` and no other
exception. The function :func:`decode` limits its time and memory: it refuses a message that is too
long before it parses the message. The function also refuses a message that is nested too deeply,
before it creates objects.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import attrs
import cattrs
import msgpack
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError
from cattrs.gen import make_dict_unstructure_fn, override

from penstock.config.protocol.control import (
    MAX_MESSAGE_BYTES,
    MAX_STATUS_BYTES,
    MESSAGE_TYPES,
    PROTOCOL_VERSION,
    ControlError,
    GroupList,
    GroupReply,
    LeaseRequest,
    Message,
    Status,
)

MAX_DEPTH: Final = 12
_LARGE_HEADS: Final[tuple[bytes, ...]] = tuple(
    b"\x94" + msgpack.packb(PROTOCOL_VERSION) + msgpack.packb(kind.__name__)
    for kind in (Status, GroupReply, GroupList)
)


def encode(message: Message, correlation: int = 0) -> bytes:
    """Encode a message with its correlation id as one frame.  ``correlation`` is 0 for notices."""
    name = type(message).__name__
    if MESSAGE_TYPES.get(name) is not type(message):
        raise ControlError(f"{name} is not a control message")
    if not 0 <= correlation < 2**63:
        raise ControlError(f"{name}: correlation id {correlation} is not in 0..2^63-1")
    try:
        body = _converter().unstructure(message)
        data = bytes(msgpack.packb([PROTOCOL_VERSION, name, correlation, body]))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ControlError(f"{name}: cannot be encoded: {error}") from None
    _check_size(data)
    return data


def decode(data: bytes) -> tuple[int, Message]:
    """Decode one frame; return the correlation id and the message."""
    _check_size(data)
    frame = _unpack(data)
    if not isinstance(frame, list) or len(frame) != 4:
        raise ControlError(
            "malformed message: expected an array of 4 elements (version, type, id, fields)"
        )
    version, name, correlation, body = frame
    if type(version) is not int or version != PROTOCOL_VERSION:
        raise ControlError(
            f"message of protocol version {_shown(version)}, expected {PROTOCOL_VERSION}: "
            "client and daemon are of different releases"
        )
    if not isinstance(name, str) or name not in MESSAGE_TYPES:
        raise ControlError(f"unknown message type {_shown(name)}")
    if type(correlation) is not int or not 0 <= correlation < 2**63:
        raise ControlError(f"{name}: correlation id {_shown(correlation)} is not in 0..2^63-1")
    if not isinstance(body, dict):
        raise ControlError(f"{name}: fields are {_shown(body)}, expected a map")
    return correlation, _structure(name, body)


def _check_size(data: bytes) -> None:
    limit = MAX_STATUS_BYTES if data.startswith(_LARGE_HEADS) else MAX_MESSAGE_BYTES
    if len(data) > limit:
        raise ControlError(f"message of {len(data)} bytes, at most {limit} are allowed")


def _unpack(data: bytes) -> Any:
    _check_depth(data)
    try:
        return msgpack.unpackb(data, strict_map_key=True, object_pairs_hook=_unique)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise ControlError(f"malformed message: {str(error) or type(error).__name__}") from None


def _unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a map contains the same key twice")
    return found


def _check_depth(data: bytes) -> None:
    """Check the nesting without building the containers."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(data) or 1)
    unpacker.feed(data)
    left = [1]      # items still to come, per open container
    try:
        while left:
            if left[-1] == 0:
                left.pop()
                continue
            left[-1] -= 1
            items = _open(unpacker, data)
            if items:
                left.append(items)
            if len(left) > MAX_DEPTH:
                raise ControlError(f"malformed message: nested deeper than {MAX_DEPTH}")
    except ControlError:
        raise
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ControlError(f"malformed message: {str(error) or type(error).__name__}") from None
    if unpacker.tell() != len(data):
        raise ControlError("malformed message: there are bytes after its end")


def _open(unpacker: msgpack.Unpacker, data: bytes) -> int:
    """Skip one value's head; return the number of values inside."""
    position = unpacker.tell()
    head = data[position] if position < len(data) else -1
    if 0x90 <= head <= 0x9F or head in (0xDC, 0xDD):
        return int(unpacker.read_array_header())
    if 0x80 <= head <= 0x8F or head in (0xDE, 0xDF):
        return 2 * int(unpacker.read_map_header())
    unpacker.skip()
    return 0


# ---- fields --------------------------------------------------------------------------------------


def _structure(name: str, body: dict[Any, Any]) -> Message:
    try:
        return _converter().structure(body, MESSAGE_TYPES[name])  # type: ignore[no-any-return]
    except ClassValidationError as error:
        raise ControlError(f"{name}: {_first_reason(error)}") from None
    except (ValueError, TypeError, OverflowError) as error:
        raise ControlError(f"{name}: {_reason(error)}") from None


def _first_reason(error: BaseException, path: str = "") -> str:
    """Return the first leaf of an exception group, with its field."""
    if isinstance(error, ForbiddenExtraKeysError):
        return f"unknown field {_shown(sorted(map(str, error.extra_fields))[0])}"
    if isinstance(error, KeyError):
        return f"field {error.args[0]} is missing"
    if not isinstance(error, BaseExceptionGroup):
        return f"{path}{_reason(error)}"
    inner = error.exceptions[0]
    for note in getattr(inner, "__notes__", ()):
        name = getattr(note, "name", None)
        if name is not None:
            path = f"field {name}: "
    return _first_reason(inner, path)


def _reason(error: BaseException) -> str:
    text = str(error.args[0]) if error.args else type(error).__name__
    return _clean(text)


def _exactly(kind: type[Any]) -> Callable[[Any, Any], Any]:
    def check(value: Any, _type: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"expected {kind.__name__}, got {_shown(value)}")
        return value

    return check


def _list(value: Any, target: Any) -> list[Any]:
    if type(value) is not list:
        raise TypeError(f"expected list, got {_shown(value)}")
    for item in value:
        if type(item) is not target.__args__[0]:
            raise TypeError(f"expected {target.__args__[0].__name__} items, got {_shown(item)}")
    return value


def _map(value: Any, _type: Any) -> dict[str, Any]:
    if type(value) is not dict or not all(type(key) is str for key in value):
        raise TypeError(f"expected a map with text keys, got {_shown(value)}")
    return value


@functools.cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(
        forbid_extra_keys=True, detailed_validation=True, omit_if_default=True,
    )
    for kind in (int, bool, str, bytes):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook_func(lambda t: getattr(t, "__origin__", None) is list, _list)
    converter.register_structure_hook_func(lambda t: getattr(t, "__origin__", None) is dict, _map)
    for message in MESSAGE_TYPES.values():
        attrs.resolve_types(message)
    later = override(omit_if_default=True)
    converter.register_unstructure_hook(
        LeaseRequest,
        make_dict_unstructure_fn(LeaseRequest, converter, watch=later, linger_ns=later),
    )
    return converter


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str | int | bytes | float | bool) else (
        "nothing" if value is None else f"a {type(value).__name__}"
    )
    return _clean(text)


def _clean(text: str) -> str:
    line = "".join(c if c.isprintable() else "?" for c in text)
    return line if len(line) <= 160 else line[:157] + "..."
