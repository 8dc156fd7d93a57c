# SPDX-License-Identifier: Apache-2.0
"""The client's classes upon their per-message part in C (``core/fast``).

Each is its plain class with some methods taken from C.  What the C side calls by name for the rare
cases is either in the plain class or here: ``_offer_slowly``, ``_send_slowly``, ``_refusal``,
``_prepare``, ``_nothing``, ``_check_limit`` and ``_address_of``.
"""

from __future__ import annotations

from typing import Any

from penstock.client._batches import Block
from penstock.client._image import Image
from penstock.client._message import Header
from penstock.client._publication import Publication
from penstock.client._reader import Reader
from penstock.client._subscription import Subscription
from penstock.core import client as core
from penstock.core import fast


class FastPublication(fast.Offerer, Publication):
    """A publication whose ``offer`` and ``send`` have no Python frame unless they are refused."""

    _address_of = staticmethod(core.address_of)

    def _offer_slowly(self, data: Any, reserved_value: int) -> int:
        return Publication.offer(self, data, reserved_value=reserved_value)

    def _send_slowly(
        self, data: Any, timeout_s: float | None, reserved_value: int, wait_connected: bool
    ) -> int:
        return Publication.send(
            self, data, timeout_s, reserved_value=reserved_value, wait_connected=wait_connected
        )

    def _offer_native(
        self, handle: core.PublicationHandle, block: Block, first: int, count: int
    ) -> core.BatchOutcome:
        offsets = None if block.stride else block.bounds()
        return core.BatchOutcome(
            *self._offer_block_at(block.base, offsets, block.stride, first, count)
        )


class FastHeader(fast.Header, Header):
    """A header whose fields are in C."""

    def _take(self, row: tuple[int, ...]) -> None:
        self._set(core.MESSAGE.pack(*row))


class _FastReader(fast.Poller, Reader):
    """What polling a subscription and polling an image have in common."""

    _address_of = staticmethod(core.address_of)

    def _new_header(self) -> Header:
        return FastHeader()

    def _fill(self, messages: core.Messages, limit: int) -> int:
        return self._fill_at(messages.address, limit)


class FastSubscription(_FastReader, Subscription):
    """A subscription whose ``poll`` runs from message to message in C."""


class FastImage(_FastReader, Image):
    """An image whose ``poll`` runs from message to message in C."""

    def _map_log(self) -> None:
        log = fast.image_log(self._handle)
        self._logs.append(log)
        self._maps.append(memoryview(log))
