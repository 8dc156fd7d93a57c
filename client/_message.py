# SPDX-License-Identifier: Apache-2.0
"""Classes of the values that polls deliver: headers, messages and batches."""

from __future__ import annotations

import contextlib
import importlib
import sys
from array import array
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from penstock.core import client as core
from penstock.core.errors import ClosedError, InvalidArgument, PenstockError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from penstock.client._credits import CreditHandle
    from penstock.client._image import Image

LENGTH: Final = 1
LOG_OFFSET: Final = 2
START_POSITION: Final = 3
POSITION: Final = 4
RESERVED_VALUE: Final = 5
SESSION_ID: Final = 6
STREAM_ID: Final = 7
TERM_ID: Final = 8
TERM_OFFSET: Final = 9
IMAGE_INDEX: Final = 10
FLAGS: Final = 11
ASSEMBLED: Final = 12


class Header:
    """Header of the current message. The header of a message. A subscription uses one header object
    for all messages. The header is valid during the handler's call; copy values that you keep."""

    # No __slots__: the fast path's header derives from this class and from one with fields in C.

    def __init__(self) -> None:
        self._fields: tuple[int, ...] = ()
        self._images: list[Image] = []

    def _take(self, row: tuple[int, ...]) -> None:
        """Take the values of another message."""
        self._fields = row

    @property
    def position(self) -> int:
        """Stream position after the message, in bytes."""
        return self._fields[POSITION]

    @property
    def start_position(self) -> int:
        """Stream position of the message's first frame, in bytes."""
        return self._fields[START_POSITION]

    @property
    def length(self) -> int:
        """Payload bytes."""
        return self._fields[LENGTH]

    @property
    def session_id(self) -> int:
        return self._fields[SESSION_ID]

    @property
    def stream_id(self) -> int:
        return self._fields[STREAM_ID]

    @property
    def term_id(self) -> int:
        return self._fields[TERM_ID]

    @property
    def term_offset(self) -> int:
        """Offset of the first frame in its term, in bytes."""
        return self._fields[TERM_OFFSET]

    @property
    def flags(self) -> int:
        """Flags of the frame; 0xC0 (begin and end) if the frame contains a whole message."""
        return self._fields[FLAGS]

    @property
    def reserved_value(self) -> int:
        """The reserved value: 64 bits that the publisher sent with the message."""
        return self._fields[RESERVED_VALUE]

    @property
    def image(self) -> Image:
        """The image of the message."""
        return self._images[self._image_index if len(self._images) > 1 else 0]

    @property
    def _image_index(self) -> int:
        return self._fields[IMAGE_INDEX]

    def __repr__(self) -> str:
        try:
            position = self.position
        except IndexError:
            position = 0
        if not position:
            return "<Header of no message>"
        return (
            f"<Header session={self.session_id} stream={self.stream_id} "
            f"position={self.position} length={self.length}>"
        )


class Message(bytes):
    """A copy of a message: a bytes object that contains the payload, and whose attributes are the
    values of the header."""

    _row: bytes
    _credit: CreditHandle | None = None

    @classmethod
    def _of(cls, row: tuple[int, ...], payload: Any) -> Message:
        made = cls(payload)
        made._row = core.MESSAGE.pack(*row)
        return made

    @property
    def credit(self) -> CreditHandle:
        """The handle with which the application releases the message's credit. In a ``for`` loop
        over messages, read ``credit`` in the loop's body. If the body does not read ``credit``, the
        next step of the loop returns the message's credit.

        :raises InvalidArgument: the subscription has no handles.
        :raises CreditReleased: the ``for`` loop has already returned this message's credit.
        """
        return credit_of(self._credit)

    def _fact(self, index: int) -> int:
        fact: int = core.MESSAGE.unpack(self._row)[index]
        return fact

    @property
    def position(self) -> int:
        """Stream position after the message, in bytes."""
        return self._fact(POSITION)

    @property
    def start_position(self) -> int:
        """Stream position of the message's first frame, in bytes."""
        return self._fact(START_POSITION)

    @property
    def session_id(self) -> int:
        """Session of the publisher; 32 bits."""
        return self._fact(SESSION_ID)

    @property
    def stream_id(self) -> int:
        """Stream of the message; 32 bits."""
        return self._fact(STREAM_ID)

    @property
    def reserved_value(self) -> int:
        """The reserved value: 64 bits that the publisher sent with the message."""
        return self._fact(RESERVED_VALUE)


class MessageBatch:
    """A batch of messages as columns: one column has the payloads of all messages, another has
    their positions, and so on.

    A batch of ``poll_batch`` has views into the log: they are valid until :meth:`release`, the end
    of a ``with`` block, or the next poll or wait of the subscription. If an array still uses a view
    of the batch, a call that would end the view raises ``BufferError`` and releases no message. A
    batch of ``recv_batch`` or ``batches`` contains copies, so its views stay valid. Columns of
    numbers are copies.
    """

    __slots__ = (
        "_check", "_columns", "_count", "_credit", "_live", "_messages", "_own", "_owned",
        "_owners", "_release", "_views",
    )

    def __init__(
        self,
        messages: core.Messages,
        count: int,
        check: Callable[[core.Messages, int], list[memoryview]],
        release: Callable[[MessageBatch], None],
        owners: Callable[[], list[Any]],
    ) -> None:
        """``owners`` returns the mapped logs or copies that contain the memory of the batch's
        views."""
        self._messages = messages
        self._live = True
        self._count = count
        self._check = check
        self._release = release
        self._owners = owners
        self._owned: list[tuple[int, Any]] = []     # their counts of references without views
        self._columns: dict[str, Any] = {}
        self._credit: CreditHandle | None = None
        self._views: list[memoryview] | None = None
        self._own: tuple[array[int], array[int]] | None = None  # payload bytes, offsets

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[memoryview]:
        return iter(self.payloads)

    def __getitem__(self, index: int) -> memoryview:
        return self.payloads[index]

    @property
    def payloads(self) -> list[memoryview]:
        """A read-only memoryview of each message, in the log or in the batch's copy."""
        self._require_live()
        if self._views is None:
            if not self._owned:
                # the list holds one reference here, and the tuple holds one in _end_views
                self._owned = [(sys.getrefcount(owner), owner) for owner in self._owners()]
            self._views = self._check(self._messages, self._count)
        return self._views

    def _detach(self) -> MessageBatch:
        """Copy the payloads: from now on the batch does not depend on the log."""
        data = array("B", bytes(self.payload_bytes))
        offsets = array("q", bytes(8 * (self._count + 1)))
        self._messages.gather(self._count, offsets.buffer_info()[0], data.buffer_info()[0])
        whole = memoryview(data).toreadonly()
        self._views = [whole[start:end] for start, end in pairwise(offsets)]
        self._own = (data, offsets)
        return self

    @property
    def credit(self) -> CreditHandle:
        """The handle with which the application releases the credits of all messages of the batch.
        In a ``for`` loop over batches, read ``credit`` in the loop's body; otherwise, the next step
        of the loop returns the batch's credits.

        :raises InvalidArgument: the subscription has no credit handles, or the batch is empty.
        :raises CreditReleased: the ``for`` loop has already returned this batch's credits.
        """
        return credit_of(self._credit)

    @property
    def payload_bytes(self) -> int:
        """Sum of the payloads' lengths."""
        return self._messages.payload_bytes(self._count)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Offset of each payload in its image's log file, in bytes; -1 for a message that was
        assembled from several frames."""
        column: NDArray[np.int64] = self._column("log_offset")
        return column

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Payload bytes."""
        column: NDArray[np.int64] = self._column("length")
        return column

    @property
    def positions(self) -> NDArray[np.int64]:
        """Stream position after each message, in bytes."""
        column: NDArray[np.int64] = self._column("position")
        return column

    @property
    def session_ids(self) -> NDArray[np.int32]:
        column: NDArray[np.int32] = self._column("session_id")
        return column

    @property
    def reserved_values(self) -> NDArray[np.int64]:
        column: NDArray[np.int64] = self._column("reserved_value")
        return column

    def to_numpy(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return two arrays: a copy of all payloads, back to back, and the count + 1 offsets at
        which the payloads begin and end.

        If ``data`` is the first array and all messages have ``n`` bytes, ``data.reshape(-1, n)``
        has one message in each row.
        """
        self._require_live()
        numpy = _import("numpy", "to_numpy() needs")
        if self._own is not None:
            own_data, own_offsets = self._own
            return numpy.array(own_data, numpy.uint8), numpy.array(own_offsets, numpy.int64)
        data = numpy.empty(self.payload_bytes, numpy.uint8)
        offsets = numpy.empty(self._count + 1, numpy.int64)
        self._messages.gather(self._count, offsets.ctypes.data, data.ctypes.data)
        return data, offsets

    def to_arrow(self) -> pa.RecordBatch:
        """Return a copy as Arrow columns: payload (large_binary), position, session_id,
        reserved_value."""
        self._require_live()
        arrow = _import("pyarrow", "to_arrow() needs")
        count, messages = self._count, self._messages
        widths = {"position": 8, "session_id": 4, "reserved_value": 8}
        if self._own is not None:
            data, offsets = (arrow.py_buffer(part) for part in self._own)
        else:
            offsets = arrow.allocate_buffer(8 * (count + 1))
            data = arrow.allocate_buffer(self.payload_bytes)
            messages.gather(count, offsets.address, data.address)
        columns = [arrow.allocate_buffer(width * count) for width in widths.values()]
        messages.columns(count, *(column.address for column in columns))
        kinds = (arrow.int64(), arrow.int32(), arrow.int64())
        batch: pa.RecordBatch = arrow.RecordBatch.from_arrays(
            [
                arrow.Array.from_buffers(arrow.large_binary(), count, [None, offsets, data]),
                *(
                    arrow.Array.from_buffers(kind, count, [None, column])
                    for kind, column in zip(kinds, columns, strict=True)
                ),
            ],
            names=["payload", *widths],
        )
        return batch

    def release(self) -> None:
        """Release the messages, so that the publisher can reuse their memory in the log.
        Idempotent.

        :raises BufferError: an array made from a view still exists; it would show other data after
            the memory is reused.
        """
        if self._live and self._own is None:
            self._end_views()
            self._let_go()

    def _let_go(self) -> None:
        self._invalidate()
        self._release(self)

    def _end_views(self) -> None:
        """End the views.

        :raises BufferError: an array or a slice still uses one. ``payloads`` makes new views.
        """
        views = self._views
        if views is None or self._own is not None:
            return
        for view in views:
            release_view(view)
        self._views = None
        if any(sys.getrefcount(owner) > count for count, owner in self._owned):
            raise BufferError(
                f"a view of the batch's {self._count} messages still exists (a slice, or an array "
                "such as np.frombuffer makes), but the publisher will reuse the memory: keep a "
                "copy, with .copy(), to_numpy() or to_arrow(), or receive with recv_batch()"
            )

    def _invalidate(self) -> None:
        """End the views without notifying the subscription."""
        for view in self._views or ():
            release_view(view)
        self._views = None
        self._owned = []
        self._live = False

    def __enter__(self) -> MessageBatch:
        return self

    def __exit__(self, kind: object, *_exc: object) -> None:
        if kind is None:
            self.release()
        elif self._live and self._own is None:
            self._let_go()      # the exception is more important than an array

    def _repr_html_(self) -> str:
        from penstock.client._html import message_batch_html

        return message_batch_html(self)

    def _require_live(self) -> None:
        if not self._live:
            raise ClosedError("the batch was released")

    def _column(self, name: str) -> Any:
        column = self._columns.get(name)
        if column is None:
            numpy = _import("numpy", "columns need")
            dtype = numpy.dtype(list(core.MESSAGE_FIELDS))
            rows = numpy.frombuffer(self._messages.raw, dtype=dtype, count=self._count)
            column = self._columns[name] = numpy.ascontiguousarray(rows[name])
        return column


def credit_of(handle: CreditHandle | None) -> CreditHandle:
    """Return ``handle``, the credit handle of a delivered message or batch.

    :raises InvalidArgument: ``handle`` is None, because the subscription was added without credit
        handles.
    :raises CreditReleased: a loop has gone on to the next message, and returned the credit.
    """
    if handle is None:
        raise InvalidArgument(
            "this message has no handle: credits return automatically unless the subscription was "
            "added with credits=penstock.Credits(N, handles=True)"
        )
    return handle._use()


def _import(package: str, user: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise PenstockError(
            f"{user} the package {package}: run 'pip install {package}', or install "
            "'penstock[arrow]'"
        ) from None


def owner_of(row: tuple[int, ...], maps: list[memoryview]) -> Any:
    """Return the object whose buffer contains a message's payload: the mapped log, or a copy if the
    message was assembled from several frames."""
    if row[ASSEMBLED]:
        return core.copy_bytes(row[0], row[LENGTH])
    return maps[row[IMAGE_INDEX] if len(maps) > 1 else 0].obj


def view_of(row: tuple[int, ...], maps: list[memoryview]) -> memoryview:
    """Return the payload of one message: a view of the log, or a copy if the message was assembled
    from several frames."""
    return view_into(owner_of(row, maps), row)


def view_into(owner: Any, row: tuple[int, ...]) -> memoryview:
    """Return the payload of one message as a new memoryview of ``owner``, which is a result of
    :func:`owner_of`."""
    start = 0 if row[ASSEMBLED] else row[LOG_OFFSET]
    return memoryview(owner)[start : start + row[LENGTH]].toreadonly()


def release_view(view: memoryview) -> None:
    """Release a memoryview, unless another object (an array, for example) still uses its memory."""
    with contextlib.suppress(BufferError):
        view.release()


def end_view(view: memoryview, owner: Any, references: int, header: Header) -> None:
    """Release the memoryview that a handler received, after the handler has returned.

    :param references: the value of ``sys.getrefcount(owner)`` in the caller before the view was
        made.
    :raises BufferError: an object that the handler made from the view still exists; it would show
        other data after the memory is reused.
    """
    with contextlib.suppress(BufferError):
        view.release()
    if sys.getrefcount(owner) > references + 1:     # one reference is this function's parameter
        raise BufferError(
            "the handler kept a view (a slice, or an array such as np.frombuffer makes) of the "
            f"message at position {header.start_position} of session {header.session_id}. The "
            "publisher will reuse the memory of this message: keep a copy, with bytes(message) or "
            "np.frombuffer(message, ...).copy()"
        )
