# SPDX-License-Identifier: Apache-2.0
"""Convert a value to a message, and several messages to a table. The schema of the typed stream
determines the conversion (``docs/typed-streams.md``). The module imports NumPy, Arrow and cattrs
only when a schema needs them."""

from __future__ import annotations

import dataclasses
import datetime
import sys
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import attrs
import msgpack

from penstock.core.errors import InvalidArgument
from penstock.errors import SchemaMismatch

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from penstock.client._consumer import ConsumerGroup
    from penstock.client._publication import Publication
    from penstock.client._subscription import Subscription
    from penstock.client._typed import TypedPublication, TypedSubscription
    from penstock.client._typed_groups import TypedConsumerGroup

    #: The values of ``schema=``, apart from a dataclass or an attrs class.
    AnySchema: TypeAlias = np.dtype[Any] | pa.Schema | Literal["msgpack"]

_T = TypeVar("_T")
#: The errors that msgpack raises for bytes from elsewhere.
_UNREADABLE: Final = (ValueError, TypeError, OverflowError, msgpack.UnpackException)
_WRONG: Final = (
    "schema= takes a dataclass, an attrs class, a NumPy dtype, an Arrow schema or 'msgpack', not "
)


class Codec(ABC):
    """One schema.  Any thread."""

    #: Name for errors.
    name: str

    @abstractmethod
    def encode(self, value: Any) -> Any:
        """Encode one value as a message, in a form that ``offer`` accepts.

        :raises InvalidArgument: the value does not fit the schema.
        """

    @abstractmethod
    def decode(self, message: Any) -> Any:
        """Decode one message to a value. ``message`` is bytes or a memoryview. The returned value
        must not refer to ``message``, because a memoryview becomes invalid when its message is
        released.

        :raises SchemaMismatch: the message does not fit the schema.
        """

    def encode_batch(self, values: Any, longest: int) -> Any:
        """Encode many values as messages, in a form that ``offer_batch`` accepts.

        :param longest: length of the longest message that the stream accepts, in bytes.
        """
        if is_table(values):
            values = self.rows_of(as_table(values))
        return [self.encode(value) for value in values]

    @abstractmethod
    def rows_of(self, table: pa.Table) -> Iterable[Any]:
        """Return the rows of an Arrow table as values of the schema."""

    @abstractmethod
    def to_arrow(self, payloads: Sequence[Any]) -> pa.Table:
        """Return messages as an Arrow table, with a row for each record."""

    def to_numpy(self, payloads: Sequence[Any]) -> Any:
        """Return messages as a structured NumPy array, with an element for each record."""
        import numpy

        table = self.to_arrow(payloads)
        columns = [table.column(name).to_numpy() for name in table.column_names]
        dtype = [(name, column.dtype) for name, column in
                 zip(table.column_names, columns, strict=True)]
        made = numpy.empty(table.num_rows, dtype)
        for name, column in zip(table.column_names, columns, strict=True):
            made[name] = column
        return made

    def publication(self, raw: Publication) -> TypedPublication[Any]:
        """Return a typed publication, which encodes values and sends them on ``raw``, a publication
        of bytes."""
        from penstock.client._typed import TypedPublication

        return TypedPublication(raw, self)

    def subscription(self, raw: Subscription) -> TypedSubscription[Any]:
        """Return a typed subscription, which decodes the messages of ``raw``, a subscription of
        bytes, to values."""
        from penstock.client._typed import TypedSubscription

        return TypedSubscription(raw, self)

    def group(self, raw: ConsumerGroup) -> TypedConsumerGroup[Any]:
        """Return a member of a consumer group that receives values: it decodes the messages of
        ``raw``, a member that receives bytes."""
        from penstock.client._typed_groups import TypedConsumerGroup

        return TypedConsumerGroup(raw, self)

    def mismatch(self, message: Any, why: str) -> SchemaMismatch:
        """Return the exception for a message that does not fit the schema."""
        return SchemaMismatch(
            f"a message of {memoryview(message).nbytes} bytes is no {self.name}: {why}; "
            "publisher and subscriber need the same schema"
        )


def optional_codec(schema: Any) -> Codec | None:
    """Return the codec for the value of ``schema=``, or None for a stream of bytes."""
    return None if schema is None else codec_of(schema)


def codec_of(schema: Any) -> Codec:
    """Return the codec for the value of ``schema=``.

    :raises InvalidArgument: there is no codec for this value of ``schema=``.
    """
    if isinstance(schema, str):
        if schema == "msgpack":
            return MsgpackCodec()
    elif _is_class(schema):
        return ClassCodec(schema)
    elif "pyarrow" in sys.modules and isinstance(schema, sys.modules["pyarrow"].Schema):
        from penstock.client._schema_tables import ArrowCodec

        return ArrowCodec(schema)
    elif "numpy" in sys.modules:
        from penstock.client._schema_tables import NumpyCodec

        try:
            return NumpyCodec(sys.modules["numpy"].dtype(schema))
        except TypeError:
            pass
    raise InvalidArgument(f"{_WRONG}{schema!r}")


class MsgpackCodec(Codec):
    """Codec for all values that msgpack can encode: numbers, text, bytes, lists, dicts, None, and
    datetimes with a time zone."""

    name = "msgpack value"

    def encode(self, value: Any) -> bytes:
        try:
            packed: bytes = msgpack.packb(value, datetime=True)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(f"msgpack cannot hold {value!r}: {error}") from None
        return packed

    def decode(self, message: Any) -> Any:
        try:
            return msgpack.unpackb(message, timestamp=3, strict_map_key=False)
        except _UNREADABLE as error:
            raise self.mismatch(message, str(error) or type(error).__name__) from None

    def rows_of(self, table: pa.Table) -> Iterable[Any]:
        rows: list[Any] = table.to_pylist()
        return rows

    def to_arrow(self, payloads: Sequence[Any]) -> pa.Table:
        import pyarrow as pa

        values = [self.decode(payload) for payload in payloads]
        columns: dict[Any, list[Any]] = {"value": values}
        if all(isinstance(value, dict) for value in values):
            names = list(dict.fromkeys(name for value in values for name in value))
            columns = {name: [value.get(name) for value in values] for name in names}
        try:
            return pa.table(columns)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise SchemaMismatch(f"the messages cannot be converted to a table: {error}") from None


class ClassCodec(Codec):
    """Codec for a dataclass or an attrs class. The fields of the class need type hints, and may
    themselves be dataclasses or attrs classes."""

    def __init__(self, schema: type) -> None:
        from cattrs.preconf.msgpack import make_converter

        self.name = schema.__name__
        self._schema = schema
        self._hints = hints_of(schema)
        converter = make_converter()
        for kind, accepted in _PLAIN.items():
            converter.register_structure_hook(kind, _exactly(kind, accepted))
            converter.register_unstructure_hook(kind, _plain(kind, accepted))
        converter.register_unstructure_hook(datetime.datetime, _checked_time)
        converter.register_unstructure_hook_factory(_plain_or_none, _optional)
        converter.register_structure_hook_factory(
            _is_class, lambda kind: _from_fields(converter, kind)
        )
        converter.register_unstructure_hook_factory(
            _is_class, lambda kind: _to_fields(converter, kind)
        )
        try:
            self._to_plain: Callable[[Any], Any] = converter.get_unstructure_hook(schema)
            self._to_value: Callable[[Any, Any], Any] = converter.get_structure_hook(schema)
        except Exception as error:
            raise InvalidArgument(f"{self.name} cannot be a schema: {error}") from None

    def encode(self, value: Any) -> bytes:
        if type(value) is not self._schema:
            raise InvalidArgument(
                f"this stream carries {self.name}, not {type(value).__name__}: {value!r}"
            )
        try:
            packed: bytes = msgpack.packb(self._to_plain(value), datetime=True)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(f"{value!r} cannot be sent: {error}") from None
        return packed

    def _fields(self, message: Any) -> Any:
        try:
            fields = msgpack.unpackb(message, timestamp=3)
        except _UNREADABLE as error:
            raise self.mismatch(message, str(error) or type(error).__name__) from None
        if not isinstance(fields, list) or len(fields) != len(self._hints):
            found = f"{len(fields)} fields" if isinstance(fields, list) else repr(fields)[:40]
            raise self.mismatch(
                message, f"the message has {found}, the schema has {len(self._hints)} fields"
            )
        return fields

    def decode(self, message: Any) -> Any:
        fields = self._fields(message)
        try:
            return self._to_value(fields, self._schema)
        except Exception as error:
            raise self.mismatch(message, _why(error)) from None

    def rows_of(self, table: pa.Table) -> Iterable[Any]:
        if missing := [name for name in self._hints if name not in table.column_names]:
            raise InvalidArgument(f"the table lacks columns of {self.name}: {', '.join(missing)}")
        columns = [table.column(name).to_pylist() for name in self._hints]
        for row in zip(*columns, strict=True):
            yield self._schema(*row)

    def to_arrow(self, payloads: Sequence[Any]) -> pa.Table:
        import pyarrow as pa

        rows = [self._fields(payload) for payload in payloads]
        columns = zip(*rows, strict=True) if rows else ((),) * len(self._hints)
        arrays = {}
        for (name, hint), column in zip(self._hints.items(), columns, strict=True):
            try:
                arrays[name] = pa.array(_as_dicts(hint, column), arrow_type(hint))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise SchemaMismatch(f"column {name} of {self.name}: {error}") from None
        return pa.table(arrays)


_PLAIN: Final[dict[Any, tuple[type, ...]]] = {
    bool: (bool,), int: (int,), float: (float, int), str: (str,), bytes: (bytes,),
    datetime.datetime: (datetime.datetime,),
}


def _exactly(kind: Any, accepted: tuple[type, ...]) -> Callable[[Any, Any], Any]:
    """Structure a plain value without converting another kind into it."""

    def structure(value: Any, _kind: Any) -> Any:
        if type(value) not in accepted:
            raise TypeError(f"{value!r:.40} is no {kind.__name__}")
        return kind(value) if kind is float else value

    return structure


def _plain(kind: Any, accepted: tuple[type, ...]) -> Callable[[Any], Any]:
    """Unstructure a plain value, if the receiver would accept it. A subclass, such as an IntEnum or
    a NumPy float, arrives as the plain type."""

    def unstructure(value: Any) -> Any:
        if not isinstance(value, accepted) or (type(value) is bool and kind is not bool):
            raise TypeError(f"{value!r:.40} is no {kind.__name__}")
        return value

    return unstructure


def _plain_or_none(hint: Any) -> bool:
    """Return whether a type hint is a plain type or None."""
    kinds = typing.get_args(hint)
    return (
        typing.get_origin(hint) in (typing.Union, types.UnionType)
        and len(kinds) == 2 and type(None) in kinds and any(kind in _PLAIN for kind in kinds)
    )


def _optional(hint: Any) -> Callable[[Any], Any]:
    (kind,) = (kind for kind in typing.get_args(hint) if kind is not type(None))
    checked: Callable[[Any], Any] = (
        _checked_time if kind is datetime.datetime else _plain(kind, _PLAIN[kind])
    )
    return lambda value: None if value is None else checked(value)


def _is_class(kind: Any) -> bool:
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or attrs.has(kind))


def _to_fields(converter: Any, kind: Any) -> Callable[[Any], Any]:
    """Unstructure a class as the array of its fields; hooks as in :func:`_from_fields`."""
    hooks: list[tuple[str, Any]] = []

    def unstructure(value: Any) -> Any:
        if not hooks:
            hooks.extend(
                (name, converter.get_unstructure_hook(hint))
                for name, hint in hints_of(kind).items()
            )
        return [hook(getattr(value, name)) for name, hook in hooks]

    return unstructure


def _from_fields(converter: Any, kind: Any) -> Callable[[Any, Any], Any]:
    """Structure a class from the array of its fields.  Hooks are looked up on first use, so that a
    class may refer to itself."""
    hooks: list[tuple[str, Any, Any]] = []
    listed = attrs.fields(kind) if attrs.has(kind) else dataclasses.fields(kind)
    positional = not any(field.kw_only for field in listed)

    def structure(fields: Any, _kind: Any) -> Any:
        if not hooks:
            hooks.extend(
                (name, hint, converter.get_structure_hook(hint))
                for name, hint in hints_of(kind).items()
            )
        if not isinstance(fields, (list, tuple)) or len(fields) != len(hooks):
            raise TypeError(
                f"{fields!r:.40} does not have the {len(hooks)} fields of {kind.__name__}"
            )
        values = [hook(value, hint) for (_, hint, hook), value in zip(hooks, fields, strict=True)]
        if positional:
            return kind(*values)
        return kind(**{name: value for (name, *_), value in zip(hooks, values, strict=True)})

    return structure


def hints_of(schema: Any) -> dict[str, Any]:
    """Return the name and the type hint of each field of a class. The constructor of the class must
    accept each field by its name."""
    hints = typing.get_type_hints(schema)
    fields: Iterable[Any] = (
        attrs.fields(schema) if attrs.has(schema) else dataclasses.fields(schema)
    )
    found = {field.name: hints.get(field.name, typing.Any) for field in fields}
    for field in fields:
        if not field.init or getattr(field, "alias", field.name) != field.name:
            raise InvalidArgument(
                f"{schema.__name__}.{field.name}: the constructor must take every field of a "
                "schema by its name"
            )
    return found


def _checked_time(value: Any) -> Any:
    if not isinstance(value, datetime.datetime):
        raise TypeError(f"{value!r:.40} is no datetime")
    if value.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone: use datetime.now(timezone.utc)")
    return value


def _why(error: BaseException) -> str:
    """The innermost reason of a converter's error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def arrow_type(hint: Any) -> Any:
    """Return the Arrow type that corresponds to a Python type hint. Return None if no Arrow type
    corresponds; Arrow then derives the type from the values."""
    import pyarrow as pa

    simple = {
        bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string(),
        bytes: pa.binary(), datetime.datetime: pa.timestamp("us", "UTC"),
    }
    if hint in simple:
        return simple[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = [kind for kind in arguments if kind is not type(None)]
        return arrow_type(kinds[0]) if len(kinds) == 1 else None
    if origin in (list, tuple) and (len(arguments) == 1 or arguments[1:] == (...,)):
        inner = arrow_type(arguments[0])
        return None if inner is None else pa.list_(inner)
    if _is_class(hint):
        inner_types = {name: arrow_type(kind) for name, kind in hints_of(hint).items()}
        if None not in inner_types.values():
            return pa.struct(list(inner_types.items()))
    return None


def _as_dicts(hint: Any, column: Iterable[Any]) -> list[Any]:
    """Nested classes travel as arrays of their fields; Arrow wants their names."""
    arguments = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    if typing.get_origin(hint) in (typing.Union, types.UnionType) and len(arguments) == 1:
        return _as_dicts(arguments[0], column)
    if typing.get_origin(hint) in (list, tuple) and arguments:
        return [None if cell is None else _as_dicts(arguments[0], cell) for cell in column]
    if _is_class(hint):
        inner = hints_of(hint)
        return [
            None if cell is None else
            {name: _as_dicts(kind, [value])[0] for (name, kind), value in
             zip(inner.items(), cell, strict=True)}
            for cell in column
        ]
    return list(column)


def is_table(values: Any) -> bool:
    """Return whether ``values`` is a table of Arrow, Polars, pandas or DuckDB."""
    return hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__") or (
        "pandas" in sys.modules and isinstance(values, sys.modules["pandas"].DataFrame)
    )


def as_table(values: Any) -> pa.Table:
    """Convert columns to an Arrow table."""
    import pyarrow as pa

    if isinstance(values, pa.Table):
        return values
    if "pandas" in sys.modules and isinstance(values, sys.modules["pandas"].DataFrame):
        return pa.Table.from_pandas(values, preserve_index=False)
    return pa.table(values)
