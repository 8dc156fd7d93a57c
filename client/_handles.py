# SPDX-License-Identifier: Apache-2.0
"""Subscriptions for which the application returns each credit to the publishers itself, with a
handle (``credit_handles=True``).

Subscriptions with credit handles use the plain Python classes, not the faster C classes, because
each message needs a Python object for its handle.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.client._credits import CreditAccount, CreditHandle, CreditLeak
from penstock.client._image import Image
from penstock.client._iteration import Held, LoopHeld
from penstock.client._message import IMAGE_INDEX, Message, MessageBatch
from penstock.client._reader import DEFAULT_BATCH
from penstock.client._subscription import Subscription
from penstock.config.protocol import control
from penstock.core import client as core
from penstock.core.credits import CreditMode, img_leak_credits, img_return_credits
from penstock.core.errors import InvalidArgument

if TYPE_CHECKING:
    from penstock.client._classes import ClientClasses
    from penstock.client._client import Client
    from penstock.client._credit_options import Credits


class HandleImage(Image):
    """An image whose subscription gives the application credit handles. Poll the subscription, not
    its images: only a poll of the subscription creates a handle for each message."""

    _credit_mode = CreditMode.HANDLES


class HandleSubscription(Subscription):
    """A subscription that gives the application a handle for the credit of each message."""

    def __init__(
        self, client: Client, channel: str, ready: control.SubscriptionReady, *,
        credit_leak: CreditLeak, **callbacks: Any,
    ) -> None:
        super().__init__(client, channel, ready, **callbacks)
        self._image_type = HandleImage
        self._account = CreditAccount(
            f"{channel} stream {ready.stream_id} of client {client.client_id} {client.name!r}",
            leak=credit_leak,
            give_back=lambda image, count: img_return_credits(image._handle, count),
            keep=lambda image, count: img_leak_credits(image._handle, count),
        )
        self._latest: CreditHandle | None = None    # of the message or batch that a loop holds
        self._latest_counts: list[tuple[Image, int]] = []

    # ---- deliveries ------------------------------------------------------------------------------

    def _next(self, held: Held, /) -> Message | None:
        message = super()._next(held)
        if message is not None:
            message._credit = self._handle_for(self._messages, 1)
        return message

    def _next_batch(self, held: Held, limit: int) -> MessageBatch | None:
        batch = super()._next_batch(held, limit)
        if batch is not None:
            self._latest = batch._credit
        return batch

    def poll_batch(self, limit: int = DEFAULT_BATCH) -> MessageBatch:
        """Like :meth:`penstock.Subscription.poll_batch`; the handle ``batch.credit`` has the
        credits of the batch."""
        batch = super().poll_batch(limit)
        if len(batch):
            batch._credit = self._handle_for(batch._messages, len(batch))
        return batch

    def _handle_for(self, messages: core.Messages, count: int) -> CreditHandle:
        self._latest_counts = self._counts(messages, 0, count)
        self._latest = self._account.handle(self._latest_counts)
        return self._latest

    def _counts(
        self, messages: core.Messages, first: int, end: int
    ) -> list[tuple[Image, int]]:
        """Return how many messages of [first, end) each image has."""
        if len(self._images) == 1:
            return [(self._images[0], end - first)]
        counts: dict[int, int] = {}
        size = core.MESSAGE.size
        for row in core.MESSAGE.iter_unpack(messages.raw[first * size : end * size]):
            counts[row[IMAGE_INDEX]] = counts.get(row[IMAGE_INDEX], 0) + 1
        return [(self._images[index], count) for index, count in counts.items()]

    # ---- releases --------------------------------------------------------------------------------

    def _finish(self, messages: core.Messages, count: int, done: int) -> None:
        """End a poll: a handled message returns its credit, one that is rewound keeps it."""
        if self._latest is not None and self._batch is None and done == 0:
            self._account.rewound(self._latest, self._latest_counts)
        self._latest = None
        super()._finish(messages, count, done)
        if done and self._handle is not None:
            self._account.give_back(self._counts(messages, 0, done))

    def _drop_batch(self) -> None:
        unused = self._latest if isinstance(self._batch, LoopHeld) else None
        super()._drop_batch()
        self._latest = None
        if unused is not None:
            unused._pass()

    def _prepare(self) -> None:
        self._account.report()
        super()._prepare()

    def _end_image(self, image: Image) -> None:
        self._account.forget(image)
        super()._end_image(image)

    @property
    def leaked_credits(self) -> int:
        """Number of lost credits: their handles were garbage-collected without a release. The
        number includes all images since the subscription was added."""
        self._account.report()
        return self._account.leaked


def subscription_class(
    classes: ClientClasses, credits: Credits | None, schema: Any
) -> Callable[..., Subscription]:
    """Return the class of a subscription with the given credit options.

    :raises InvalidArgument: the caller requested credit handles and a schema; values of a schema
        cannot have handles.
    """
    if credits is None or not credits.handles:
        return classes.subscription
    if schema is not None:
        raise InvalidArgument("a typed stream has no credit handles: leave handles=True out")
    return partial(HandleSubscription, credit_leak=credits.leak)
