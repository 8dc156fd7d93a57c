# SPDX-License-Identifier: Apache-2.0
"""Subscriptions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import attrs

from penstock.client._credits import SubscriptionCredits
from penstock.client._image import Image
from penstock.client._iteration import Batches, Held, Messages
from penstock.client._message import Message, MessageBatch
from penstock.client._reader import DEFAULT_BATCH, Handler, Reader
from penstock.client._restart import Gap
from penstock.client._withhold import set_withheld, withhold
from penstock.config.protocol import control
from penstock.core import client as core
from penstock.core.credits import img_credits
from penstock.core.errors import ClosedError, InvalidArgument, TimeoutExpired

if TYPE_CHECKING:
    from penstock.client._client import Client

ImageCallback: TypeAlias = Callable[[Image], object]
GapCallback: TypeAlias = Callable[[Gap], object]
ResumedCallback: TypeAlias = Callable[[list[int]], object]
_GAPS_KEPT = 64
_LEFT_KEPT = 256
_ENDED_KEPT = 256


class _Renewal(NamedTuple):
    """Marks the place in the queue of notices at which the subscription changes its
    registration."""

    ready: control.SubscriptionReady
    handle: core.SubscriptionHandle


@attrs.frozen(kw_only=True)
class SubscriptionStatistics:
    """State of a subscription at one moment. All positions are in bytes."""

    channel: str
    stream_id: int
    images: int
    positions: tuple[tuple[int, int], ...]
    """(session id, position handed out) of each image."""


class Subscription(Reader):
    """Receives the messages of one stream on one channel. Only one thread at a time may use a
    subscription.

    Made by :meth:`penstock.Client.add_subscription`. At the end of a ``with`` block the
    subscription closes itself.
    """

    def __init__(
        self,
        client: Client,
        channel: str,
        ready: control.SubscriptionReady,
        *,
        on_available: ImageCallback | None,
        on_unavailable: ImageCallback | None,
        on_gap: GapCallback | None = None,
        on_resumed: ResumedCallback | None = None,
    ) -> None:
        handle = core.sub_open(client._native(), ready.registration_id, ready.stream_id)
        super().__init__(core.sub_poll, handle)
        self._client = client
        self._channel = channel
        self._ready = ready
        self._images: list[Image] = []
        self._header._images = self._images
        self._notices: deque[Any] = client._port.notices(ready.registration_id)
        self._gaps: deque[Gap] = deque(maxlen=_GAPS_KEPT)
        self._on_gap = on_gap
        self._on_resumed = on_resumed
        self._left: dict[int, _Left] = {}  # by session
        self._had_image = False
        self._on_available = on_available
        self._on_unavailable = on_unavailable
        self._image_type = client._classes.image
        self._settled_epochs: dict[int, int] = {}   # of completed freezes, by image
        self._ended: deque[int] = deque(maxlen=_ENDED_KEPT)     # latest images that ended

    # ---- facts -----------------------------------------------------------------------------------

    @property
    def channel(self) -> str:
        return self._channel

    @property
    def stream_id(self) -> int:
        return self._ready.stream_id

    @property
    def registration_id(self) -> int:
        return self._ready.registration_id

    @property
    def local_addresses(self) -> tuple[str, ...]:
        """The addresses (``ip:port``) on which the daemon receives this channel. If the channel
        states port 0, the addresses contain the port that the kernel chose."""
        return tuple(self._ready.local_addresses)

    @property
    def images(self) -> tuple[Image, ...]:
        """The present images. A read of ``images`` also handles the daemon's notices about new and
        ended images, so it may call ``on_available`` and ``on_unavailable``."""
        self._refresh()
        return tuple(self._images)

    @property
    def is_connected(self) -> bool:
        """Whether there is an image. A read of ``is_connected`` also handles the daemon's notices
        about new and ended images, so it may call ``on_available`` and ``on_unavailable``."""
        self._refresh()
        return bool(self._images)

    @property
    def is_closed(self) -> bool:
        return self._handle is None

    def statistics(self) -> SubscriptionStatistics:
        """A frozen snapshot."""
        images = self.images
        return SubscriptionStatistics(
            channel=self._channel,
            stream_id=self.stream_id,
            images=len(images),
            positions=tuple((image.session_id, image.position) for image in images),
        )

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Ranges of positions whose messages this subscription has missed permanently, the newest
        last; at most 64."""
        return tuple(self._gaps)

    # ---- waiting ---------------------------------------------------------------------------------

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until there is a message to poll. Return True if there is a message, and False if
        ``timeout_s`` seconds have passed.

        If the application has not released a batch of ``poll_batch``, ``wait`` releases this batch
        before it sleeps, because the publisher may need the batch's memory.

        :raises DaemonGone: the daemon died, and no message is left.
        """
        self._check_not_polling()
        self._drop_batch()
        return self._client._parking().until(self._has_data, timeout_s)

    def wait_connected(self, timeout_s: float | None = None) -> bool:
        """Sleep until the subscription has an image. Return True if the subscription has an image,
        and False if ``timeout_s`` seconds have passed."""
        return self._client._parking().until(lambda: self.is_connected, timeout_s)

    def _soon(self) -> bool:
        """Return whether there is a message to poll, perhaps after a short time awake; False if
        only :meth:`_has_data` can decide."""
        return False

    def _has_data(self) -> bool:
        self._refresh()
        return bool(core.sub_has_data(self._open()))

    # ---- receiving, in loops ---------------------------------------------------------------------

    def __iter__(self) -> Messages:
        """``for message in subscription`` is the same as a loop over :meth:`messages`."""
        return self.messages()

    def messages(self, timeout_s: float | None = None, *, until_end: bool = False) -> Messages:
        """Iterate over messages; wait for each message.  Each owns its bytes.

        The subscription releases a message at the next step of the loop, or when ``break`` or
        ``return`` ends the loop.  If an exception leaves the loop, the message is not released, and
        the next loop or poll delivers it again.  The loop ends when the subscription is closed.

        :param timeout_s: the longest wait for one message, in seconds; None: without end.
        :param until_end: end the loop when all publishers have ended and all messages were
            delivered. The loop waits for the first publisher.
        :raises TimeoutExpired: no message within ``timeout_s``.
        :raises DaemonGone: the daemon died, and no message is left.
        """
        self._open()
        return Messages(self, timeout_s, until_end, 1)

    def batches(
        self, limit: int = DEFAULT_BATCH, timeout_s: float | None = None, *,
        until_end: bool = False,
    ) -> Batches:
        """Iterate over batches of up to ``limit`` messages; wait for each batch. A batch owns its
        bytes. A batch is released at the next step of the loop. If an exception leaves the loop,
        the whole batch is delivered again, as with :meth:`messages`.
        """
        self._open()
        self._check_limit(limit)
        return Batches(self, timeout_s, until_end, limit)

    def recv(self, timeout_s: float | None = None) -> Message:
        """Wait for one message and release it.  It owns its bytes.

        :raises TimeoutExpired: no message within ``timeout_s`` seconds.
        """
        held = Held(self)
        while (message := self._next(held)) is None:
            self._wait_step(timeout_s, until_end=False)
        self._drop_batch()
        return message

    def recv_batch(
        self, limit: int = DEFAULT_BATCH, timeout_s: float | None = None
    ) -> MessageBatch:
        """Wait for a message; return copies of the available messages, at most ``limit``, and
        release them. The batch owns its bytes.

        :raises TimeoutExpired: no message within ``timeout_s`` seconds.
        """
        held = Held(self)
        while (batch := self._next_batch(held, limit)) is None:
            self._wait_step(timeout_s, until_end=False)
        self._drop_batch()
        return batch

    def _wait_step(self, timeout_s: float | None, until_end: bool) -> bool:
        """Wait for the next message. False: with ``until_end``, no further message can arrive."""
        if not until_end:
            come = self.wait(timeout_s)
        else:
            come = self._client._parking().until(self._step_condition(until_end), timeout_s)
        if not come:
            raise self._no_message(timeout_s)
        return not until_end or self._has_data()

    def _no_message(self, timeout_s: float | None) -> TimeoutExpired:
        count = len(self._images)
        connected = "1 publisher is" if count == 1 else f"{count or 'no'} publishers are"
        return TimeoutExpired(
            f"no message on {self._channel} stream {self.stream_id} within {timeout_s:g} s: "
            f"{connected} connected"
        )

    def _step_condition(self, until_end: bool) -> Callable[[], bool]:
        """Return the condition that ends the wait of a loop."""
        return self._has_data_or_end if until_end else self._has_data

    def _has_data_or_end(self) -> bool:
        return self._has_data() or self._has_ended()

    def _has_ended(self) -> bool:
        """Return whether there was a publisher and all have ended."""
        return (
            self._had_image
            and all(image.is_end_of_stream for image in self._images)
            and self._client.is_daemon_alive
        )

    # ---- credits ---------------------------------------------------------------------------------

    @property
    def credits(self) -> SubscriptionCredits:
        """The sum of the credits of all present images. All values are 0 if the subscription was
        added without ``credits=``."""
        views = [img_credits(image._handle) for image in self.images]
        return SubscriptionCredits(
            granted=sum(view.granted for view in views),
            returned=sum(view.returned for view in views),
            held=sum(view.passed - view.returned - view.leaked for view in views),
            leaked=sum(view.leaked for view in views),
        )

    def withhold(self, timeout_s: float, handler: Handler | None = None) -> None:
        """Stop the publishers, and wait until the application has released every message that they
        have published.

        The publishers' offers return ``Offer.NO_CREDIT``. Every message that a publisher has
        already published is delivered before the call returns. If a ``for`` loop has not released
        its message or batch, ``withhold`` releases this message or batch before it stops the
        publishers.

        :param handler: called with the messages that still arrive, as by :meth:`poll`. Without a
            handler, only messages that were delivered before the call may be outstanding.
        :raises WithholdTimeout: messages were outstanding after ``timeout_s`` seconds. The error
            names these messages, and the publishers continue.
        :raises ChannelRefused: the subscription grants no credits, or a sender does not support
            credits.
        """
        self._check_not_polling()
        self._drop_batch()
        withhold(self, timeout_s, handler, self._client._parking().until)

    def resume(self) -> None:
        """Grant credits again, after :meth:`withhold`.  Idempotent."""
        set_withheld(self, withheld=False)

    def drain(self, timeout_s: float, handler: Handler | None = None) -> None:
        """Stop the publishers, deliver the messages that still arrive, and close the subscription.

        The method ``drain`` has the parameters and errors of :meth:`withhold`. After an error the
        subscription stays open.
        """
        self.withhold(timeout_s, handler)
        self.close()

    # ---- destinations ----------------------------------------------------------------------------

    def add_destination(self, channel: str) -> int:
        """Add a destination on which the subscription listens (``control-mode=manual``). Return its
        id."""
        return self._request(
            control.AddDestination(registration_id=self.registration_id, channel=channel)
        ).registration_id

    def remove_destination(self, destination: str | int) -> None:
        """Stop listening on a destination, which is given by its channel or its id."""
        self._request(removal(self.registration_id, destination))

    def _request(self, request: Any) -> control.Done:
        self._open()
        return self._client._perform(request)

    # ---- life ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the subscription. After the close, memoryviews of messages in the subscription's
        logs are invalid. Idempotent."""
        if self._handle is None:
            return
        self._client._remove(
            self, control.RemoveSubscription(registration_id=self.registration_id)
        )

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _drop(self) -> None:
        """Release all local resources."""
        if self._handle is None:
            return
        if self._batch is not None:
            self._batch._invalidate()
            self._batch = None
        self._handle = None
        self._maps = []
        self._logs = []
        images, self._images = self._images, []
        for image in images:
            image._close()

    def _open(self) -> core.SubscriptionHandle:
        handle: core.SubscriptionHandle | None = self._handle   # another thread may close
        if handle is None:
            self._client._check()
            raise ClosedError("the subscription is closed")
        return handle

    # ---- images ----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._check_not_polling()
        if self._batch is not None:
            self._drop_batch()
        if self._notices or self._handle is None:
            self._refresh()

    def _refresh(self) -> None:
        """Apply the daemon's notices about images, in order, and call the callbacks."""
        self._open()
        if self._polling:
            return  # the list must not change under the poll that is running
        while self._notices:
            notice = self._notices[0]
            if isinstance(notice, (_Renewal, control.SubscriptionResumed)):
                if not self._let_go(notice):
                    return  # messages in the log are read first
                continue
            self._notices.popleft()
            self._drop_batch()
            if isinstance(notice, control.ImageAvailable):
                self._image_available(notice)
            elif isinstance(notice, control.ImageUnavailable):
                self._image_unavailable(notice)

    def _let_go(self, notice: _Renewal | control.SubscriptionResumed) -> bool:
        """End the images that a new daemon could not adopt, after they were read to the end. False:
        not yet."""
        kept = () if isinstance(notice, _Renewal) else notice.correlation_ids
        lost = [image for image in self._images if image.correlation_id not in kept]
        if any(core.img_has_data(image._handle) for image in lost):
            return False
        self._notices.popleft()
        self._drop_batch()
        for image in lost:
            complete = image.is_end_of_stream
            gap = Gap(
                stream_id=self.stream_id, session_id=image.session_id,
                from_position=image.position, to_position=None,
            )
            self._end_image(image)
            if not complete:
                self._notify(gap)
        if isinstance(notice, _Renewal):
            self._ready, self._handle = notice.ready, notice.handle
            self._notices = self._client._port.notices(notice.ready.registration_id)
        elif self._on_resumed is not None:
            self._on_resumed(notice.correlation_ids)
        return True

    def _pass_gaps(self) -> None:
        for image in tuple(self._images):
            gap = image._take_gap()
            if gap is not None:
                self._notify(gap)

    def _notify(self, gap: Gap) -> None:
        self._gaps.append(gap)
        if self._on_gap is not None:
            self._on_gap(gap)

    def _renew(self, ready: control.SubscriptionReady) -> None:
        """Take the id that a new daemon gave to this subscription. Any thread; takes effect on the
        polling thread."""
        handle = core.sub_open(self._client._native(), ready.registration_id, ready.stream_id)
        self._notices.append(_Renewal(ready, handle))

    def _image_available(self, notice: control.ImageAvailable) -> None:
        if any(image.correlation_id == notice.correlation_id for image in self._images):
            return  # repeated by a daemon that adopted the image
        image = self._image_type(self, self._client._native(), notice)
        core.sub_add_image(self._handle, image._handle)
        core.img_report_gaps(image._handle)
        self._images.append(image)
        self._had_image = True
        self._maps += image._maps
        self._logs += image._logs
        self._report_return(image, notice.join_ordinal)
        if self._on_available is not None:
            self._on_available(image)

    def _image_unavailable(self, notice: control.ImageUnavailable) -> None:
        known = [image.correlation_id for image in self._images]
        self._ended.append(notice.correlation_id)
        if notice.correlation_id not in known:
            return
        image = self._images[known.index(notice.correlation_id)]
        self._left.pop(image.session_id, None)
        self._left[image.session_id] = _Left(
            initial_term_id=image.initial_term_id, position=image.position,
            ordinal=_ordinal_at(image, notice),
        )
        if len(self._left) > _LEFT_KEPT:
            del self._left[next(iter(self._left))]
        self._end_image(image)

    def _report_return(self, image: Image, join_ordinal: int) -> None:
        """Report the gap if a session returns after its image ended, because its sender
        continued."""
        left = self._left.pop(image.session_id, None)
        if left is None or left.initial_term_id != image.initial_term_id or \
                image.join_position <= left.position:
            return
        known = left.ordinal >= 0 and join_ordinal >= left.ordinal
        self._notify(
            Gap(
                stream_id=self.stream_id, session_id=image.session_id,
                from_position=left.position, to_position=image.join_position,
                messages=join_ordinal - left.ordinal if known else None,
            )
        )

    def _end_image(self, image: Image) -> None:
        # Another thread may close: it replaces the lists after it has cleared the handle.
        images, maps, logs = self._images, self._maps, self._logs
        handle = self._open()
        index = images.index(image)
        core.sub_remove_image(handle, image._handle)
        del images[index]
        del maps[index]
        del logs[index : index + 1]
        try:
            if self._on_unavailable is not None:
                self._on_unavailable(image)
        finally:
            image._close()

    def _rewind(self, messages: core.Messages, count: int, first: int) -> None:
        core.sub_rewind(self._handle, messages, count, first)

    def _release(self) -> None:
        if self._handle is not None:
            core.sub_release(self._handle)

    def _repr_html_(self) -> str:
        from penstock.client._html import subscription_html

        return subscription_html(self)

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"{len(self._images)} images"
        return f"<Subscription {self._channel} stream={self.stream_id} {state}>"


@attrs.frozen(kw_only=True)
class _Left:
    """Position at which an image ended. Its session may return at a later position."""

    initial_term_id: int
    position: int
    ordinal: int                        # number of messages below position, -1 unknown


def _ordinal_at(image: Image, notice: control.ImageUnavailable) -> int:
    """Return the number of messages below the reader's position, -1 unknown."""
    if notice.end_ordinal < 0:
        return -1
    unread = core.img_count(image._handle, image.position, notice.end_position)
    return notice.end_ordinal - unread if 0 <= unread <= notice.end_ordinal else -1


def removal(registration_id: int, destination: str | int) -> control.RemoveDestination:
    """Return a request to remove a destination; ``destination`` is its channel or its id."""
    if isinstance(destination, str):
        return control.RemoveDestination(registration_id=registration_id, channel=destination)
    if destination <= 0:
        raise InvalidArgument(f"a destination id is positive, not {destination}")
    return control.RemoveDestination(registration_id=registration_id, destination_id=destination)
