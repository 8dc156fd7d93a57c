# SPDX-License-Identifier: Apache-2.0
"""Copies attrs values into C structs of the same field names, and addresses both ways."""

from __future__ import annotations

import ipaddress
from typing import Any

import attrs

from penstock.core._lib import ffi, lib
from penstock.core.driver_types import Address
from penstock.core.errors import native_error


def last_error() -> str:
    """Text of this thread's last failure in the core."""
    return bytes(ffi.string(lib.ps_last_error())).decode("utf-8", "replace")


def check(code: int, operation: str) -> int:
    """``code`` when it is not negative, else the exception for it."""
    if code < 0:
        raise native_error(code, last_error(), operation=operation)
    return code


def fill_address(target: Any, address: Address | None) -> None:
    """Writes a ``ps_addr_t``; None is family 0."""
    if address is None:
        target.family = 0
        return
    target.family = address.family
    target.port = address.port
    target.scope_id = address.scope_id
    ffi.buffer(target.ip)[0:16] = address.packed()


def new_address(address: Address | None) -> Any:
    out = ffi.new("ps_addr_t *")
    fill_address(out, address)
    return out


def read_address(source: Any) -> Address | None:
    """The Python form of a ``ps_addr_t``; None when its family is unset or unknown."""
    raw = bytes(ffi.buffer(source.ip))
    if source.family == 4:
        return Address(ip=str(ipaddress.IPv4Address(raw[:4])), port=source.port)
    if source.family == 6:
        ip = str(ipaddress.IPv6Address(raw))
        return Address(ip=ip, port=source.port, scope_id=source.scope_id)
    return None


def fill(target: Any, value: Any, *, skip: frozenset[str] = frozenset()) -> list[Any]:
    """Copies every field of an attrs value into the struct.  Returns what must stay alive as long
    as the struct is used (strings)."""
    keep: list[Any] = []
    for field in attrs.fields(type(value)):
        if field.name in skip:
            continue
        item = getattr(value, field.name)
        if isinstance(item, Address):
            fill_address(getattr(target, field.name), item)
        elif isinstance(item, str):
            text = ffi.new("char[]", item.encode("utf-8"))
            keep.append(text)
            setattr(target, field.name, text)
        elif attrs.has(type(item)):
            keep.extend(fill(getattr(target, field.name), item))
        elif item is not None:
            setattr(target, field.name, int(item))
    return keep
