# SPDX-License-Identifier: Apache-2.0
"""Members of consumer groups whose streams carry values of one schema."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from penstock.client._consumer import DEFAULT_BATCH, DEFAULT_BYTES, ConsumerGroup, GroupBatch
from penstock.client._schemas import Codec
from penstock.client._typed import TypedBatch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penstock.client._async_consumer import AsyncConsumerGroup, AsyncGroupBatch
    from penstock.client._group_credits import BatchHandler
    from penstock.client._groups import GroupState

T = TypeVar("T")


class _GroupValues(TypedBatch[T]):
    """Values of the messages of a group's batch, whose payloads do not lie back to back."""

    def __init__(self, codec: Codec, raw: Any) -> None:
        super().__init__(codec, raw)
        self._raw = raw

    def to_numpy(self) -> NDArray[Any]:
        array: NDArray[Any] = self._codec.to_numpy(self._raw.payloads)
        return array

    @property
    def session_id(self) -> int:
        """Session of the publisher."""
        session_id: int = self._raw.session_id
        return session_id

    @property
    def is_committed(self) -> bool:
        """Whether ``commit`` has succeeded."""
        return bool(self._raw.is_committed)


class TypedGroupBatch(_GroupValues[T]):
    """A :class:`penstock.GroupBatch` whose messages are values of one schema. Iterate over the
    values, or convert all of them to a table, as with a :class:`penstock.TypedBatch`."""

    _raw: GroupBatch

    @property
    def raw(self) -> GroupBatch:
        """The batch of bytes."""
        return self._raw

    def commit(self) -> None:
        """See :meth:`penstock.GroupBatch.commit`."""
        self._raw.commit()

    def _repr_html_(self) -> str:
        from penstock.client._html import group_batch_html

        return group_batch_html(self._raw, self)

    def __repr__(self) -> str:
        return f"<Typed{repr(self._raw)[1:-1]} of {self._codec.name}>"


class TypedConsumerGroup(Generic[T]):
    """A :class:`penstock.ConsumerGroup` whose batches have values of one schema."""

    def __init__(self, group: ConsumerGroup, codec: Codec) -> None:
        self._raw = group
        self._codec = codec

    @property
    def raw(self) -> ConsumerGroup:
        """The underlying member of the group, which receives bytes. Use the underlying member for
        all methods that a typed member does not have."""
        return self._raw

    def messages(
        self, limit: int = DEFAULT_BATCH, timeout_s: float | None = None, *,
        max_bytes: int = DEFAULT_BYTES,
    ) -> Iterator[TypedGroupBatch[T]]:
        """Iterate over batches, like :meth:`penstock.ConsumerGroup.messages`."""
        return map(self._typed, self._raw.messages(limit, timeout_s, max_bytes=max_bytes))

    def recv_batch(
        self, limit: int = DEFAULT_BATCH, timeout_s: float | None = None, *,
        max_bytes: int = DEFAULT_BYTES,
    ) -> TypedGroupBatch[T]:
        """Wait for one batch, like :meth:`penstock.ConsumerGroup.recv_batch`."""
        return self._typed(self._raw.recv_batch(limit, timeout_s, max_bytes=max_bytes))

    def _typed(self, batch: GroupBatch) -> TypedGroupBatch[T]:
        return TypedGroupBatch(self._codec, batch)

    def withhold(
        self, timeout_s: float, handler: Callable[[TypedGroupBatch[T]], None] | None = None
    ) -> None:
        """See :meth:`penstock.ConsumerGroup.withhold`."""
        self._raw.withhold(timeout_s, _raw_handler(handler, self._typed))

    def resume(self) -> None:
        """See :meth:`penstock.ConsumerGroup.resume`."""
        self._raw.resume()

    def drain(
        self, timeout_s: float, handler: Callable[[TypedGroupBatch[T]], None] | None = None
    ) -> None:
        """See :meth:`penstock.ConsumerGroup.drain`."""
        self._raw.drain(timeout_s, _raw_handler(handler, self._typed))

    def state(self) -> GroupState:
        """See :meth:`penstock.ConsumerGroup.state`."""
        return self._raw.state()

    def end(self) -> None:
        """See :meth:`penstock.ConsumerGroup.end`."""
        self._raw.end()

    def close(self) -> None:
        """See :meth:`penstock.ConsumerGroup.close`."""
        self._raw.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        from penstock.client._html import group_html

        return group_html(self._raw, self._codec.name)

    def __repr__(self) -> str:
        return f"<Typed{repr(self._raw)[1:-1]} of {self._codec.name}>"


def _raw_handler(
    handler: Callable[[TypedGroupBatch[T]], None] | None,
    typed: Callable[[GroupBatch], TypedGroupBatch[T]],
) -> BatchHandler | None:
    if handler is None:
        return None
    return lambda batch: handler(typed(batch))


class AsyncTypedGroupBatch(_GroupValues[T]):
    """A :class:`penstock.TypedGroupBatch` for asyncio and trio: ``commit`` is awaited."""

    _raw: AsyncGroupBatch

    @property
    def raw(self) -> AsyncGroupBatch:
        """See :attr:`penstock.TypedGroupBatch.raw`."""
        return self._raw

    async def commit(self) -> None:
        """See :meth:`penstock.AsyncGroupBatch.commit`."""
        await self._raw.commit()

    def _repr_html_(self) -> str:
        from penstock.client._html import group_batch_html

        return group_batch_html(self._raw.sync, self)

    def __repr__(self) -> str:
        return f"<Typed{repr(self._raw)[1:-1]} of {self._codec.name}>"


class AsyncTypedConsumerGroup(Generic[T]):
    """A :class:`penstock.TypedConsumerGroup` for asyncio and trio, whose methods have the same
    names and results. Only one task at a time may use the object."""

    def __init__(self, group: AsyncConsumerGroup, codec: Codec) -> None:
        self._raw = group
        self._codec = codec

    @property
    def raw(self) -> AsyncConsumerGroup:
        """See :attr:`penstock.TypedConsumerGroup.raw`."""
        return self._raw

    async def messages(
        self, limit: int = DEFAULT_BATCH, timeout_s: float | None = None, *,
        max_bytes: int = DEFAULT_BYTES,
    ) -> AsyncIterator[AsyncTypedGroupBatch[T]]:
        """See :meth:`penstock.ConsumerGroup.messages`."""
        async for batch in self._raw.messages(limit, timeout_s, max_bytes=max_bytes):
            yield AsyncTypedGroupBatch(self._codec, batch)

    async def recv_batch(
        self, limit: int = DEFAULT_BATCH, timeout_s: float | None = None, *,
        max_bytes: int = DEFAULT_BYTES,
    ) -> AsyncTypedGroupBatch[T]:
        """See :meth:`penstock.ConsumerGroup.recv_batch`."""
        batch = await self._raw.recv_batch(limit, timeout_s, max_bytes=max_bytes)
        return AsyncTypedGroupBatch(self._codec, batch)

    async def withhold(
        self, timeout_s: float, handler: Callable[[TypedGroupBatch[T]], None] | None = None
    ) -> None:
        """See :meth:`penstock.AsyncConsumerGroup.withhold`; the batches are those of a
        :class:`penstock.TypedConsumerGroup`."""
        await self._raw.withhold(timeout_s, _raw_handler(handler, self._batch))

    async def resume(self) -> None:
        """See :meth:`penstock.ConsumerGroup.resume`."""
        await self._raw.resume()

    async def drain(
        self, timeout_s: float, handler: Callable[[TypedGroupBatch[T]], None] | None = None
    ) -> None:
        """See :meth:`penstock.AsyncConsumerGroup.drain`."""
        await self._raw.drain(timeout_s, _raw_handler(handler, self._batch))

    def _batch(self, batch: GroupBatch) -> TypedGroupBatch[T]:
        return TypedGroupBatch(self._codec, batch)

    async def state(self) -> GroupState:
        """See :meth:`penstock.ConsumerGroup.state`."""
        return await self._raw.state()

    async def end(self) -> None:
        """See :meth:`penstock.ConsumerGroup.end`."""
        await self._raw.end()

    async def close(self) -> None:
        """See :meth:`penstock.AsyncConsumerGroup.close`."""
        await self._raw.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def _repr_html_(self) -> str:
        from penstock.client._html import group_html

        return group_html(self._raw.sync, self._codec.name)

    def __repr__(self) -> str:
        return f"<Typed{repr(self._raw)[1:-1]} of {self._codec.name}>"
