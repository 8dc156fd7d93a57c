# SPDX-License-Identifier: Apache-2.0
"""Typed streams, which carry values of one schema instead of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.client._reader import DEFAULT_BATCH, DEFAULT_LIMIT
from penstock.client._schemas import Codec

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.client._message import Header, MessageBatch
    from penstock.client._publication import Publication
    from penstock.client._publication_facts import BatchResult
    from penstock.client._subscription import Subscription

T = TypeVar("T")


class TypedBatch(Generic[T]):
    """Values of one batch.  Iterate over the values, or convert all of them to a table.

    A batch of values has the Arrow C stream interface, so libraries that read this interface accept
    the batch as it is. Examples of direct use are ``pl.DataFrame(batch)``, ``pa.table(batch)``, and
    ``FROM batch`` in DuckDB.
    """

    def __init__(self, codec: Codec, messages: MessageBatch) -> None:
        self._codec = codec
        self._messages = messages

    @property
    def messages(self) -> MessageBatch:
        """The messages: payloads, positions, sessions.  They own their bytes."""
        return self._messages

    def __len__(self) -> int:
        """Number of messages."""
        return len(self._messages)

    def __iter__(self) -> Iterator[T]:
        if hasattr(self._codec, "records"):
            return iter(self.to_numpy())
        return map(self._codec.decode, self._messages.payloads)

    def __getitem__(self, index: int) -> T:
        value: T = self._codec.decode(self._messages[index])
        return value

    def to_numpy(self) -> NDArray[Any]:
        """Return a structured array, with an element for each record.

        :raises SchemaMismatch: a message does not fit the schema.
        """
        records = getattr(self._codec, "records", None)
        if records is not None:
            data, _offsets = self._messages.to_numpy()
            made: NDArray[Any] = records(data, self._messages.lengths)
            return made
        array: NDArray[Any] = self._codec.to_numpy(self._messages.payloads)
        return array

    def to_arrow(self) -> pa.Table:
        """Return an Arrow table, with a row for each record.

        :raises SchemaMismatch: a message does not fit the schema.
        """
        if hasattr(self._codec, "records"):
            from penstock.client._schema_tables import arrow_of

            return arrow_of(self.to_numpy())
        return self._codec.to_arrow(self._messages.payloads)

    def to_polars(self) -> pl.DataFrame:
        """Return a Polars data frame, with a row for each record."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas data frame, with a row for each record."""
        return self.to_arrow().to_pandas()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        from penstock.client._html import typed_batch_html

        return typed_batch_html(self)

    def __repr__(self) -> str:
        return f"<TypedBatch of {len(self)} messages: {self._codec.name}>"


class TypedPublication(Generic[T]):
    """A :class:`penstock.Publication` that publishes values of one schema instead of bytes."""

    def __init__(self, publication: Publication, codec: Codec) -> None:
        self._raw = publication
        self._codec = codec

    @property
    def raw(self) -> Publication:
        """The underlying publication of bytes; use it for all calls that a typed publication does
        not have."""
        return self._raw

    def offer(self, value: T) -> int:
        """Publish one value, like :meth:`penstock.Publication.offer`.

        :raises InvalidArgument: the value does not fit the schema.
        """
        return self._raw.offer(self._codec.encode(value))

    def send(
        self, value: T, timeout_s: float | None = None, *, wait_connected: bool = True
    ) -> int:
        """Publish one value and wait for room, like :meth:`penstock.Publication.send`."""
        return self._raw.send(
            self._codec.encode(value), timeout_s, wait_connected=wait_connected
        )

    def offer_batch(self, values: Iterable[T] | Any) -> BatchResult:
        """Publish many values, like :meth:`penstock.Publication.offer_batch`.

        :param values: values of the schema; or a table of Arrow, Polars, pandas or DuckDB with the
            schema's columns, a row a value.
        """
        return self._raw.offer_batch(self._encoded(values))

    def send_batch(
        self, values: Iterable[T] | Any, timeout_s: float | None = None, *,
        wait_connected: bool = True,
    ) -> int:
        """Publish many values and wait for room, like :meth:`penstock.Publication.send_batch`.

        :param values: the values to publish, as for :meth:`offer_batch`.
        """
        return self._raw.send_batch(
            self._encoded(values), timeout_s, wait_connected=wait_connected
        )

    def _encoded(self, values: Any) -> Any:
        return self._codec.encode_batch(values, self._raw.max_message_length)

    @property
    def receivers(self) -> int:
        """See :attr:`penstock.Publication.receivers`."""
        return self._raw.receivers

    def wait_connected(self, timeout_s: float | None = None, *, receivers: int = 1) -> bool:
        """See :meth:`penstock.Publication.wait_connected`."""
        return self._raw.wait_connected(timeout_s, receivers=receivers)

    def close(self) -> None:
        """See :meth:`penstock.Publication.close`."""
        self._raw.close()

    def __enter__(self) -> TypedPublication[T]:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        from penstock.client._html import publication_html

        return publication_html(self._raw, self._codec.name)

    def __repr__(self) -> str:
        return f"<Typed{repr(self._raw)[1:-1]} of {self._codec.name}>"


class TypedSubscription(Generic[T]):
    """A :class:`penstock.Subscription` that returns values of one schema instead of bytes."""

    def __init__(self, subscription: Subscription, codec: Codec) -> None:
        self._raw = subscription
        self._codec = codec

    @property
    def raw(self) -> Subscription:
        """The underlying subscription of bytes; use it for all calls that a typed subscription does
        not have."""
        return self._raw

    def __iter__(self) -> Iterator[T]:
        """``for value in subscription`` is the same as a loop over :meth:`messages`."""
        return self.messages()

    # ``map`` holds the loop underneath and nothing more, so its end is seen as without a schema.

    def messages(self, timeout_s: float | None = None, *, until_end: bool = False) -> Iterator[T]:
        """Iterate over values, like :meth:`penstock.Subscription.messages`.

        :raises SchemaMismatch: a message does not fit the schema; this message is not released.
        """
        return map(self._codec.decode, self._raw.messages(timeout_s, until_end=until_end))

    def batches(
        self, limit: int = DEFAULT_BATCH, timeout_s: float | None = None, *,
        until_end: bool = False,
    ) -> Iterator[TypedBatch[T]]:
        """Iterate over batches of values, like :meth:`penstock.Subscription.batches`."""
        return map(self._batch, self._raw.batches(limit, timeout_s, until_end=until_end))

    def _batch(self, messages: MessageBatch) -> TypedBatch[T]:
        return TypedBatch(self._codec, messages)

    def recv(self, timeout_s: float | None = None) -> T:
        """Wait for one value, like :meth:`penstock.Subscription.recv`."""
        value: T = self._codec.decode(self._raw.recv(timeout_s))
        return value

    def recv_batch(
        self, limit: int = DEFAULT_BATCH, timeout_s: float | None = None
    ) -> TypedBatch[T]:
        """Wait for values, like :meth:`penstock.Subscription.recv_batch`."""
        return TypedBatch(self._codec, self._raw.recv_batch(limit, timeout_s))

    def poll(self, handler: Callable[[T, Header], object], limit: int = DEFAULT_LIMIT) -> int:
        """Call ``handler(value, header)`` for the available values,
        like :meth:`penstock.Subscription.poll`.  The value owns its memory."""
        decode = self._codec.decode
        return self._raw.poll(lambda message, header: handler(decode(message), header), limit)

    def wait(self, timeout_s: float | None = None) -> bool:
        """See :meth:`penstock.Subscription.wait`."""
        return self._raw.wait(timeout_s)

    def wait_connected(self, timeout_s: float | None = None) -> bool:
        """See :meth:`penstock.Subscription.wait_connected`."""
        return self._raw.wait_connected(timeout_s)

    def close(self) -> None:
        """See :meth:`penstock.Subscription.close`."""
        self._raw.close()

    def __enter__(self) -> TypedSubscription[T]:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        from penstock.client._html import subscription_html

        return subscription_html(self._raw, self._codec.name)

    def __repr__(self) -> str:
        return f"<Typed{repr(self._raw)[1:-1]} of {self._codec.name}>"
