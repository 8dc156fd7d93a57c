# SPDX-License-Identifier: Apache-2.0
"""The client's fast classes: the methods that run once for each message are written in C
(``core/fast``).

Each class of this module is a plain Python class in which C methods replace some of the Python
methods. In rare cases the C methods call the following Python functions of the plain class or of
this module: ``_offer_slowly``, ``_send_slowly``, ``_refusal``, ``_prepare``, ``_nothing``,
``_check_limit``, ``_wait_slowly``, ``_check_waiting`` and ``_address_of``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.client._batches import Block
from penstock.client._image import Image
from penstock.client._message import Header
from penstock.client._no_credit import OnNoCredit
from penstock.client._parking import Parking
from penstock.client._publication import Publication
from penstock.client._reader import Reader
from penstock.client._subscription import Subscription
from penstock.core import client as core
from penstock.core import fast

if TYPE_CHECKING:
    from penstock.client._client import Client


class FastPublication(fast.Offerer, Publication):
    """A publication whose ``offer`` and ``send`` run in C; Python code handles refused messages."""

    _address_of = staticmethod(core.address_of)

    def _offer_slowly(self, data: Any, reserved_value: int) -> int:
        return Publication.offer(self, data, reserved_value=reserved_value)

    def _send_slowly(
        self, data: Any, timeout_s: float | None, reserved_value: int, wait_connected: bool,
        on_no_credit: OnNoCredit,
    ) -> int:
        return Publication.send(
            self, data, timeout_s, reserved_value=reserved_value, wait_connected=wait_connected,
            on_no_credit=on_no_credit,
        )

    def _block(self, messages: Any) -> Block:
        joined = fast.join(messages) if type(messages) in (list, tuple) else None
        if joined is None:
            return super()._block(messages)
        data, offsets, longest = joined
        block = Block(base=data, count=len(messages), offsets=offsets, longest=longest)
        return self._checked(block)

    def _offer_native(
        self, handle: core.PublicationHandle, block: Block, first: int, count: int
    ) -> core.BatchOutcome:
        offsets = None if block.stride else block.bounds()
        return core.BatchOutcome(
            *self._offer_block_at(block.base, offsets, block.stride, first, count)
        )


class FastHeader(fast.Header, Header):
    """A message header whose fields are stored and read by C code."""

    def _take(self, row: tuple[int, ...]) -> None:
        self._set(core.MESSAGE.pack(*row))


class FastParking(fast.Park, Parking):
    """A :class:`Parking` whose waits run in C. The C code gets the address of the core's client
    object from ``_address_of``."""

    _address_of = staticmethod(core.address_of)


class _FastReader(Reader):
    """Code that subscriptions and images share, in addition to fast.Poller."""

    _fill_at: Callable[[int, int], int]
    _views_at: Callable[[int, int], list[memoryview]]

    _address_of = staticmethod(core.address_of)

    def _new_header(self) -> Header:
        return FastHeader()

    def _new_messages(self, capacity: int) -> core.Messages:
        return fast.FastMessages(capacity)

    def _check(self, messages: core.Messages, count: int) -> list[memoryview]:
        return self._views_at(messages.address, count)

    def _fill(self, messages: core.Messages, limit: int) -> int:
        return self._fill_at(messages.address, limit)


class FastSubscription(fast.Waiter, _FastReader, Subscription):
    """A subscription whose ``poll`` and ``wait`` run in C."""

    def __init__(self, client: Client, *args: Any, **kwargs: Any) -> None:
        super().__init__(client, *args, **kwargs)
        self._park = client._parking()

    def _wait_slowly(self, timeout_s: float | None) -> bool:
        return Subscription.wait(self, timeout_s)

    def _check_waiting(self) -> None:
        self._client._check()


class FastImage(fast.Poller, _FastReader, Image):
    """An image whose ``poll`` runs in C."""

    def _map_log(self) -> None:
        log = fast.image_log(self._handle)
        self._logs.append(log)
        self._maps.append(memoryview(log))
