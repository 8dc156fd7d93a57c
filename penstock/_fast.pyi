# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import Buffer

from penstock.client._publication import Payload

def connect(address: int, /) -> None: ...

def payload_bytes(messages: int, count: int, /) -> int: ...
def gather(messages: int, count: int, offsets: int, data: int, /) -> None: ...
def columns(
    messages: int, count: int, positions: int, session_ids: int, reserved_values: int, /
) -> None: ...
def join(items: Sequence[object], /) -> tuple[bytes, bytes, int] | None: ...

class Log:
    def __init__(self, address: int, length: int, owner: object) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Guard:
    def __init__(self, ended: Callable[[bool], object]) -> None: ...

class Header:
    position: int
    start_position: int
    length: int
    reserved_value: int
    session_id: int
    stream_id: int
    term_id: int
    term_offset: int
    flags: int
    _image_index: int
    def _set(self, row: Buffer, /) -> None: ...

class Park:
    _handle: Any

class Offerer:
    _handle: Any
    def offer(
        self, data: Payload, *, reserved_value: int = 0, never_throttle: bool = False
    ) -> int: ...
    def send(
        self,
        data: Payload,
        timeout_s: float | None = None,
        *,
        reserved_value: int = 0,
        wait_connected: bool = True,
        on_no_credit: Any = "block",
    ) -> int: ...
    def _offer_block_at(
        self, base: Any, offsets: Any, stride: int, first: int, count: int, /
    ) -> tuple[int, int]: ...

class Poller:
    _handle: Any
    _header: Any
    _logs: list[Any]
    _notices: Any
    _park: Any
    _batch: Any
    _polling: int
    _is_image: bool
    def poll(
        self,
        handler: Callable[[memoryview, Any], object],
        limit: int = 64,
        *,
        checked: bool = False,
    ) -> int: ...
    def _next(self, held: Any, /) -> Any: ...
    def _give_back(self) -> None: ...
    def _take(self, limit: int, /) -> list[bytes]: ...
    def _views_at(self, address: int, count: int, /) -> list[memoryview]: ...
    def _fill_at(self, address: int, limit: int, /) -> int: ...
    def _release(self) -> None: ...

class Waiter(Poller):
    def _soon(self) -> bool: ...
    def wait(self, timeout_s: float | None = None) -> bool: ...
