# SPDX-License-Identifier: Apache-2.0
"""The class :class:`Library` gives access to a compiled core: it has the core's functions, and
converts Python values to their arguments.

A process may load two cores: the product's ``penstock._core`` and the simulator's
``penstock._core_sim``, which contains the same core and the simulator's object files. The two cores
share no variable. Do not pass an object that one core created to a function of the other core. Each
handle refers to the library (the core) that created it. If a function gets a handle of another
library, it raises an error that names both libraries.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any, Final, Protocol

import attrs

from penstock.core.errors import InvalidArgument, native_error
from penstock.core.stream_types import Address


class Owned(Protocol):
    """An object of a library."""

    @property
    def library(self) -> Library: ...


class Library:
    """The functions of one compiled core.  Any thread."""

    __slots__ = ("ffi", "lib", "name")

    def __init__(self, name: str, module: Any) -> None:
        """``module`` is the extension that cffi made; ``name`` is its name in errors."""
        self.name: Final = name
        self.ffi: Final[Any] = module.ffi
        self.lib: Final[Any] = module.lib

    def __repr__(self) -> str:
        return f"Library({self.name!r})"

    # ---- results ----

    def last_error(self) -> str:
        """Text of the last failure of this core in the calling thread, "" if there was none."""
        pointer = self.lib.ps_last_error()
        return bytes(self.ffi.string(pointer)).decode("utf-8", "replace") if pointer else ""

    def check(self, code: int, operation: str = "") -> int:
        """Return ``code`` if it is not negative; otherwise raise the exception for this error
        code."""
        if code < 0:
            raise native_error(code, self.last_error(), operation=operation)
        return code

    def refuse_others(self, **objects: Owned) -> None:
        """:raises InvalidArgument: an object belongs to another library; the error names the
        object's keyword."""
        for name, owned in objects.items():
            if owned.library is not self:
                raise InvalidArgument(
                    f"{name} belongs to {owned.library.name}, not to {self.name}: "
                    "create both with the same library"
                )

    # ---- arguments ----

    def fill_address(self, target: Any, address: Address | None) -> None:
        """Write an address into a ``ps_addr_t``; None is written as family 0."""
        if address is None:
            target.family = 0
            return
        target.family = address.family
        target.port = address.port
        target.scope_id = address.scope_id
        self.ffi.buffer(target.ip)[0:16] = address.packed()

    def new_address(self, address: Address | None) -> Any:
        out = self.ffi.new("ps_addr_t *")
        self.fill_address(out, address)
        return out

    def read_address(self, source: Any) -> Address | None:
        """Return the Python form of a ``ps_addr_t``; None if its family is unset or unknown."""
        raw = bytes(self.ffi.buffer(source.ip))
        if source.family == 4:
            return Address(ip=str(ipaddress.IPv4Address(raw[:4])), port=source.port)
        if source.family == 6:
            ip = str(ipaddress.IPv6Address(raw))
            return Address(ip=ip, port=source.port, scope_id=source.scope_id)
        return None

    def fill(self, target: Any, value: Any, *, skip: frozenset[str] = frozenset()) -> list[Any]:
        """Copy every field of an attrs value into the struct. Return the objects (strings) that
        must stay alive while the struct is used."""
        keep: list[Any] = []
        for field in attrs.fields(type(value)):
            if field.name in skip:
                continue
            item = getattr(value, field.name)
            if isinstance(item, int):           # most fields
                setattr(target, field.name, int(item))
            elif isinstance(item, Address):
                self.fill_address(getattr(target, field.name), item)
            elif isinstance(item, str):
                text = self.ffi.new("char[]", item.encode("utf-8"))
                keep.append(text)
                setattr(target, field.name, text)
            elif isinstance(item, tuple):       # the ids of a ps_relay_path_t
                path = getattr(target, field.name)
                path.ids, path.count = item, len(item)
            elif attrs.has(type(item)):
                keep.extend(self.fill(getattr(target, field.name), item))
            elif item is not None:
                setattr(target, field.name, int(item))
        return keep


class Handle:
    """A native object of a library. When the last reference to the handle or to its pointer is
    dropped, the native object is freed and its owner is released."""

    __slots__ = ("__weakref__", "lib", "library", "native")

    def __init__(
        self, library: Library, pointer: Any, free: Callable[[Any], None], owner: object = None
    ) -> None:
        """When the handle is dropped, the handle calls ``free(pointer)`` once, and then drops its
        reference to ``owner``."""
        self.library = library
        self.lib = library.lib
        self.native = library.ffi.gc(pointer, Closer(free, owner))


class Closer:
    """Destructor of a native pointer. The destructor frees the pointer, and keeps the pointer's
    owner alive until then."""

    __slots__ = ("_free", "_owner")

    def __init__(self, free: Callable[[Any], None], owner: object) -> None:
        self._free = free
        self._owner = owner

    def __call__(self, pointer: Any) -> None:
        self._free(pointer)
        self._owner = None


class NativeObject:
    """Base class of the control plane's native objects. Each object belongs to one library."""

    def __init__(self, handle: Any, library: Library) -> None:
        self.library: Final = library
        self._handle = handle
        self._lib = library.lib
        self._ffi = library.ffi
        self._check = library.check
        self._fill = library.fill

    @property
    def handle(self) -> Any:
        """The native pointer, for other modules that use the same library."""
        return self._handle
