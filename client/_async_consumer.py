# SPDX-License-Identifier: Apache-2.0
"""Members of consumer groups for asyncio and trio: see :class:`penstock.ConsumerGroup`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Self

import anyio

from penstock.client._async_threads import in_thread, made_in_thread, to_the_end
from penstock.client._consumer import (
    DEFAULT_BATCH,
    DEFAULT_BYTES,
    LONGEST_S,
    SHORTEST_S,
    ConsumerGroup,
    GroupBatch,
)
from penstock.client._group_credits import BatchHandler, GroupWithholding
from penstock.core.errors import ClosedError

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.client._groups import GroupState
    from penstock.client._message import Message


class AsyncGroupBatch:
    """A :class:`penstock.GroupBatch` for asyncio and trio, whose method ``commit`` is awaited."""

    def __init__(self, batch: GroupBatch) -> None:
        self._sync = batch

    @property
    def sync(self) -> GroupBatch:
        """The underlying synchronous batch."""
        return self._sync

    def __len__(self) -> int:
        return len(self._sync)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._sync)

    def __getitem__(self, index: int) -> Message:
        return self._sync[index]

    @property
    def payloads(self) -> list[memoryview]:
        """See :attr:`penstock.GroupBatch.payloads`."""
        return self._sync.payloads

    @property
    def session_id(self) -> int:
        """See :attr:`penstock.GroupBatch.session_id`."""
        return self._sync.session_id

    @property
    def start_position(self) -> int:
        """See :attr:`penstock.GroupBatch.start_position`."""
        return self._sync.start_position

    @property
    def position(self) -> int:
        """See :attr:`penstock.GroupBatch.position`."""
        return self._sync.position

    @property
    def is_committed(self) -> bool:
        """See :attr:`penstock.GroupBatch.is_committed`."""
        return self._sync.is_committed

    def to_arrow(self) -> pa.RecordBatch:
        """See :meth:`penstock.GroupBatch.to_arrow`."""
        return self._sync.to_arrow()

    async def commit(self) -> None:
        """See :meth:`penstock.GroupBatch.commit`. If the task is cancelled meanwhile, the commit
        still completes; the cancellation takes effect afterwards."""
        await to_the_end(self._sync.commit)

    def _repr_html_(self) -> str:
        return self._sync._repr_html_()

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"


class AsyncConsumerGroup:
    """A :class:`penstock.ConsumerGroup` for asyncio and trio, whose methods have the same names and
    results. Only one task at a time may use the member."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._sync = group

    @property
    def sync(self) -> ConsumerGroup:
        """The underlying synchronous member."""
        return self._sync

    @property
    def name(self) -> str:
        """See :attr:`penstock.ConsumerGroup.name`."""
        return self._sync.name

    @property
    def channel(self) -> str:
        """See :attr:`penstock.ConsumerGroup.channel`."""
        return self._sync.channel

    @property
    def stream_id(self) -> int:
        """See :attr:`penstock.ConsumerGroup.stream_id`."""
        return self._sync.stream_id

    @property
    def is_closed(self) -> bool:
        """See :attr:`penstock.ConsumerGroup.is_closed`."""
        return self._sync.is_closed

    async def state(self) -> GroupState:
        """See :meth:`penstock.ConsumerGroup.state`."""
        return await in_thread(self._sync.state)

    async def messages(
        self, limit: int = DEFAULT_BATCH, timeout_s: float | None = None, *,
        max_bytes: int = DEFAULT_BYTES,
    ) -> AsyncIterator[AsyncGroupBatch]:
        """See :meth:`penstock.ConsumerGroup.messages`."""
        self._sync._check_sizes(limit, max_bytes)
        await in_thread(self._sync._release)
        while not self.is_closed:
            batch = await self._wait(limit, timeout_s, max_bytes)
            if batch is None:
                return
            yield AsyncGroupBatch(batch)

    async def recv_batch(
        self, limit: int = DEFAULT_BATCH, timeout_s: float | None = None, *,
        max_bytes: int = DEFAULT_BYTES,
    ) -> AsyncGroupBatch:
        """See :meth:`penstock.ConsumerGroup.recv_batch`."""
        self._sync._check_sizes(limit, max_bytes)
        batch = await self._wait(limit, timeout_s, max_bytes)
        if batch is None:
            raise ClosedError("the member of the group is closed")
        return AsyncGroupBatch(batch)

    async def _wait(
        self, limit: int, timeout_s: float | None, max_bytes: int
    ) -> GroupBatch | None:
        began, pause = time.monotonic(), SHORTEST_S
        while not self._sync._closing.is_set():
            try:
                claim = partial(self._sync._claim, limit, max_bytes)
                batch = await made_in_thread(claim, self._sync._put_back)
            except ClosedError:
                if not self._sync._closing.is_set():
                    raise
                return None         # another task closed the member
            if batch is not None:
                return batch
            if timeout_s is not None and time.monotonic() - began >= timeout_s:
                raise self._sync._nothing(timeout_s)
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST_S)
        return None

    async def withhold(self, timeout_s: float, handler: BatchHandler | None = None) -> None:
        """See :meth:`penstock.ConsumerGroup.withhold`. ``handler`` runs in a worker thread. If the
        task is cancelled during the call, the publishers continue."""
        freeze = GroupWithholding(self._sync, handler)
        done = False
        try:
            await in_thread(freeze.request)
            done = await self._until(freeze, timeout_s)
            if not done:
                raise await in_thread(freeze.failure, timeout_s)
        finally:
            if not done and not self.is_closed:
                await to_the_end(self._sync.resume)

    async def _until(self, freeze: GroupWithholding, timeout_s: float) -> bool:
        deadline, pause = time.monotonic() + timeout_s, SHORTEST_S
        while not await in_thread(freeze.is_done):
            if time.monotonic() >= deadline:
                return False
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST_S)
        return True

    async def resume(self) -> None:
        """See :meth:`penstock.ConsumerGroup.resume`."""
        await in_thread(self._sync.resume)

    async def drain(self, timeout_s: float, handler: BatchHandler | None = None) -> None:
        """See :meth:`penstock.ConsumerGroup.drain`."""
        await self.withhold(timeout_s, handler)
        await self.close()

    async def end(self) -> None:
        """See :meth:`penstock.ConsumerGroup.end`."""
        await in_thread(self._sync.end)

    async def close(self) -> None:
        """See :meth:`penstock.ConsumerGroup.close`. If the task is cancelled meanwhile, the close
        still completes; the cancellation takes effect afterwards."""
        await to_the_end(self._sync.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def _repr_html_(self) -> str:
        return self._sync._repr_html_()

    def __repr__(self) -> str:
        return f"<Async{repr(self._sync)[1:]}"
