# SPDX-License-Identifier: Apache-2.0
"""Publications for event loops: see :class:`penstock.Publication`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.client._async_parking import AsyncParking
from penstock.client._async_threads import in_thread, to_the_end
from penstock.client._claim import Claim
from penstock.client._no_credit import (
    OnNoCredit,
    PublicationCredits,
    checked,
    is_diverted,
    other_of,
)
from penstock.client._pressure import Pressure, Rest
from penstock.client._publication import Publication
from penstock.client._publication_facts import (
    BatchResult,
    PublicationStatistics,
    RemoteRejection,
)
from penstock.client._receivers import condition
from penstock.client._restart import LostSession

if TYPE_CHECKING:
    from penstock.client._publication import Payload


class AsyncPublication:
    """A :class:`penstock.Publication` for asyncio and trio, whose methods have the same names and
    results. Calls that wait, or that exchange messages with the daemon, are awaited."""

    def __init__(self, parking: AsyncParking, publication: Publication) -> None:
        self._parking = parking
        self._sync = publication

    @property
    def sync(self) -> Publication:
        """The underlying synchronous publication."""
        return self._sync

    # ---- sending ---------------------------------------------------------------------------------

    def offer(
        self, data: Payload, *, reserved_value: int = 0, never_throttle: bool = False
    ) -> int:
        """See :meth:`penstock.Publication.offer`: this call never waits, so it needs no
        ``await``."""
        return self._sync.offer(
            data, reserved_value=reserved_value, never_throttle=never_throttle
        )

    def offer_batch(self, messages: Any) -> BatchResult:
        """See :meth:`penstock.Publication.offer_batch`: this call never waits, so it needs no
        ``await``."""
        return self._sync.offer_batch(messages)

    def try_claim(self, length: int) -> Claim:
        """See :meth:`penstock.Publication.try_claim`: this call never waits, so it needs no
        ``await``."""
        return self._sync.try_claim(length)

    async def send(
        self,
        data: Payload,
        timeout_s: float | None = None,
        *,
        reserved_value: int = 0,
        wait_connected: bool = True,
        on_no_credit: OnNoCredit = "block",
    ) -> int:
        """See :meth:`penstock.Publication.send`.  If the call is cancelled, the message was not
        sent."""
        await self._parking.breathe()       # first: after the offer, nothing may raise
        sync = self._sync
        position = sync.offer(data, reserved_value=reserved_value)
        if position > 0:
            return position

        checked(on_no_credit)

        rest = Rest(sync)
        rest.note(position)

        def settled() -> bool:
            return is_diverted(position, on_no_credit) or sync._settled(position, wait_connected)

        def attempt() -> bool:
            nonlocal position
            sync._want_room()
            position = sync._offer_on(data, reserved_value)
            rest.note(position)
            return settled()

        if not settled() and not await self._parking.until(attempt, timeout_s, rest.left_ns):
            await in_thread(sync._raise_timeout, position, timeout_s)
        if is_diverted(position, on_no_credit):
            other = other_of(sync, on_no_credit)
            if other is not None:
                if not isinstance(other, AsyncPublication):
                    other = AsyncPublication(self._parking, other)
                position = await other.send(data, timeout_s, reserved_value=reserved_value)
        return position

    async def send_batch(
        self, messages: Any, timeout_s: float | None = None, *, wait_connected: bool = True
    ) -> int:
        """See :meth:`penstock.Publication.send_batch`. If the call is cancelled, a part of the
        batch may have been sent."""
        sending = self._sync._batch_sender(messages, wait_connected)
        while not sending.is_done:
            if not await self._parking.until(
                sending.attempt, timeout_s, sending.rest.left_ns
            ):
                await in_thread(self._sync._raise_timeout, sending.position, timeout_s)
        return sending.position

    async def wait_connected(
        self, timeout_s: float | None = None, *, receivers: int = 1
    ) -> bool:
        """See :meth:`penstock.Publication.wait_connected`."""
        return await self._parking.until(condition(self._sync, receivers), timeout_s)

    # ---- facts -----------------------------------------------------------------------------------

    @property
    def receivers(self) -> int:
        """See :attr:`penstock.Publication.receivers`."""
        return self._sync.receivers

    @property
    def credits(self) -> PublicationCredits:
        """See :attr:`penstock.Publication.credits`."""
        return self._sync.credits

    @property
    def retry_after_s(self) -> float:
        """See :attr:`penstock.Publication.retry_after_s`."""
        return self._sync.retry_after_s

    @property
    def channel(self) -> str:
        """See :attr:`penstock.Publication.channel`."""
        return self._sync.channel

    @property
    def stream_id(self) -> int:
        """See :attr:`penstock.Publication.stream_id`."""
        return self._sync.stream_id

    @property
    def session_id(self) -> int:
        """See :attr:`penstock.Publication.session_id`."""
        return self._sync.session_id

    @property
    def registration_id(self) -> int:
        """See :attr:`penstock.Publication.registration_id`."""
        return self._sync.registration_id

    @property
    def original_id(self) -> int:
        """See :attr:`penstock.Publication.original_id`."""
        return self._sync.original_id

    @property
    def position(self) -> int:
        """See :attr:`penstock.Publication.position`."""
        return self._sync.position

    @property
    def position_limit(self) -> int:
        """See :attr:`penstock.Publication.position_limit`."""
        return self._sync.position_limit

    @property
    def available_window(self) -> int:
        """See :attr:`penstock.Publication.available_window`."""
        return self._sync.available_window

    @property
    def is_connected(self) -> bool:
        """See :attr:`penstock.Publication.is_connected`."""
        return self._sync.is_connected

    @property
    def is_closed(self) -> bool:
        """See :attr:`penstock.Publication.is_closed`."""
        return self._sync.is_closed

    def reset(self) -> bool:
        """See :meth:`penstock.Publication.reset`."""
        return self._sync.reset()

    @property
    def is_failed(self) -> bool:
        """See :attr:`penstock.Publication.is_failed`."""
        return self._sync.is_failed

    @property
    def is_exclusive(self) -> bool:
        """See :attr:`penstock.Publication.is_exclusive`."""
        return self._sync.is_exclusive

    @property
    def max_payload_length(self) -> int:
        """See :attr:`penstock.Publication.max_payload_length`."""
        return self._sync.max_payload_length

    @property
    def max_message_length(self) -> int:
        """See :attr:`penstock.Publication.max_message_length`."""
        return self._sync.max_message_length

    @property
    def term_length(self) -> int:
        """See :attr:`penstock.Publication.term_length`."""
        return self._sync.term_length

    @property
    def lost_sessions(self) -> tuple[LostSession, ...]:
        """See :attr:`penstock.Publication.lost_sessions`."""
        return self._sync.lost_sessions

    @property
    def rejections(self) -> tuple[RemoteRejection, ...]:
        """See :attr:`penstock.Publication.rejections`."""
        return self._sync.rejections

    def statistics(self) -> PublicationStatistics:
        """See :meth:`penstock.Publication.statistics`."""
        return self._sync.statistics()

    async def pressure(self) -> Pressure:
        """See :meth:`penstock.Publication.pressure`."""
        return await in_thread(self._sync.pressure)

    # ---- destinations ----------------------------------------------------------------------------

    async def add_destination(self, channel: str) -> int:
        """See :meth:`penstock.Publication.add_destination`."""
        return await in_thread(self._sync.add_destination, channel)

    async def remove_destination(self, destination: str | int) -> None:
        """See :meth:`penstock.Publication.remove_destination`."""
        await in_thread(self._sync.remove_destination, destination)

    # ---- life ------------------------------------------------------------------------------------

    async def revoke(self) -> None:
        """See :meth:`penstock.Publication.revoke`. If the task is cancelled meanwhile, the revoke
        still completes; the cancellation takes effect afterwards."""
        await to_the_end(self._sync.revoke)

    async def close(self) -> None:
        """See :meth:`penstock.Publication.close`. If the task is cancelled meanwhile, the close
        still completes; the cancellation takes effect afterwards."""
        await to_the_end(self._sync.close)

    async def __aenter__(self) -> AsyncPublication:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def _repr_html_(self) -> str:
        return self._sync._repr_html_()

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"
