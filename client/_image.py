# SPDX-License-Identifier: Apache-2.0
"""Images: an image is one session of the stream that a subscription reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client._message import MessageBatch
from penstock.client._reader import DEFAULT_BATCH, Reader
from penstock.client._restart import Gap
from penstock.config.protocol import control
from penstock.core import client as core
from penstock.core.errors import ClosedError

if TYPE_CHECKING:
    from penstock.client._subscription import Subscription


class Image(Reader):
    """An image of one session. Only the thread that uses the image's subscription may use the
    image.

    An application can poll an image directly, whether or not it also polls the subscription.
    """

    _credit_mode = 0        # ps_credit_mode; 0: as the notice says

    def __init__(
        self, subscription: Subscription, client: core.ClientHandle, notice: control.ImageAvailable
    ) -> None:
        handle = core.img_open(
            client,
            core.ImageParams(
                log_path=notice.log_path,
                correlation_id=notice.correlation_id,
                subscription_id=notice.subscription_id,
                position_counter_id=notice.position_counter_id,
                subscriber_slot=notice.subscriber_slot,
                image_slot=notice.image_slot,
                publication_slot=notice.publication_slot,
                credit_mode=self._credit_mode or notice.credit_mode,
                isolation=notice.isolation,
                depth_bytes=notice.depth_bytes,
                join_position=notice.join_position,
                join_ordinal=notice.join_ordinal,
                fan_in_weight=notice.fan_in_weight,
            ),
        )
        super().__init__(core.img_poll, handle)
        self._is_image = True
        self._map_log()
        self._header._images.append(self)
        self._notice = notice
        self._subscription = subscription

    def _map_log(self) -> None:
        self._maps.append(core.img_map(self._handle))

    @property
    def subscription(self) -> Subscription:
        return self._subscription

    @property
    def correlation_id(self) -> int:
        """The id that the daemon assigned to this image."""
        return self._notice.correlation_id

    @property
    def session_id(self) -> int:
        return self._notice.session_id

    @property
    def stream_id(self) -> int:
        return self._notice.stream_id

    @property
    def source_identity(self) -> str:
        """Source of the image: the sender's ``ip:port``, ``aeron:ipc`` for IPC, or ``aeron-spy``
        for a spy."""
        return self._notice.source_identity

    @property
    def relay_path(self) -> tuple[int, ...]:
        """Ids of the relays that the stream has passed; the first id belongs to the relay nearest
        to the publisher."""
        return tuple(self._notice.relay_path)

    @property
    def join_position(self) -> int:
        """Position at which this subscription joined the stream, in bytes."""
        return self._notice.join_position

    @property
    def position(self) -> int:
        """Position up to which this subscription has delivered messages to the application, in
        bytes."""
        return core.img_position(self._open())

    @property
    def released_position(self) -> int:
        """Position up to which this subscription has released messages, in bytes; the publisher may
        reuse the log below this position."""
        return core.img_released(self._open())

    @property
    def term_length(self) -> int:
        """Bytes."""
        return core.img_term_length(self._open())

    @property
    def mtu(self) -> int:
        """Longest frame in bytes."""
        return core.img_mtu(self._open())

    @property
    def initial_term_id(self) -> int:
        return core.img_initial_term_id(self._open())

    @property
    def is_end_of_stream(self) -> bool:
        """Whether the publisher has ended the stream, and this subscription has delivered all
        messages of the stream."""
        return bool(core.img_is_end_of_stream(self._open()))

    @property
    def transport_count(self) -> int:
        """Number of the subscription's destinations that receive data of this session; each
        destination has one socket."""
        return core.img_transport_count(self._open())

    @property
    def is_closed(self) -> bool:
        """Whether the image has ended or its subscription was closed."""
        return self._handle is None

    def reject(self, reason: str) -> None:
        """Reject the image's stream. The daemon ends the image, and sends the text ``reason`` to
        the publisher.

        :raises ChannelRefused: the daemon no longer has the image, or it has no publisher to
            notify.
        """
        self._open()
        self._subscription._request(
            control.RejectImage(correlation_id=self.correlation_id, reason=reason)
        )

    def _open(self) -> core.ImageHandle:
        if self._handle is None:
            raise ClosedError("the image is closed")
        handle: core.ImageHandle = self._handle
        return handle

    def _take_gap(self) -> Gap | None:
        taken = core.img_take_gap(self._open())
        if taken is None:
            return None
        return Gap(
            stream_id=self._subscription.stream_id, session_id=self.session_id,
            from_position=taken[0], to_position=taken[1], messages=taken[2],
        )

    def _pass_gaps(self) -> None:
        self._subscription._pass_gaps()

    def _prepare(self) -> None:
        self._check_not_polling()
        self._subscription._refresh()
        self._subscription._drop_batch()  # the message may lie in this image's memory
        self._drop_batch()
        self._open()

    def poll_batch(self, limit: int = DEFAULT_BATCH) -> MessageBatch:
        batch = super().poll_batch(limit)
        if len(batch):
            self._subscription._batch = batch  # a poll of the image or of the subscription ends it
        return batch

    def _rewind(self, messages: core.Messages, count: int, first: int) -> None:
        row = core.MESSAGE.unpack_from(messages.raw, first * core.MESSAGE.size)
        core.img_rewind(self._handle, row[3])

    def _release(self) -> None:
        if self._handle is not None:
            core.img_release(self._handle)

    def _close(self) -> None:
        """Drop the mapping; existing views keep it alive."""
        if self._batch is not None:
            self._batch._invalidate()
            self._batch = None
        self._maps = []
        self._logs = []
        self._handle = None

    def _repr_html_(self) -> str:
        from penstock.client._html import image_html

        return image_html(self)

    def __repr__(self) -> str:
        return (
            f"<Image session={self.session_id} stream={self.stream_id} "
            f"from {self.source_identity}{' closed' if self.is_closed else ''}>"
        )
