# SPDX-License-Identifier: Apache-2.0
"""Create the fields of the configuration models. A configuration field has a default, a unit,
accepted values, and texts for the annotated file and the reference page."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import attrs

from penstock.config import uri
from penstock.config.units import DURATION_UNITS, SIZE_UNITS, write_duration, write_size

METADATA: Final = "penstock"
I32_MAX: Final = 2**31 - 1
_DURATION_FORM: Final = 'a duration of at least {}, as nanoseconds or text like "5s"'


class FieldError(ValueError):
    """Raised if the value of a configuration key is wrong."""

    def __init__(self, key: str, got: Any, expected: str) -> None:
        super().__init__(f"{key} = {got!r}: expected {expected}")
        self.key = key
        self.got = got
        self.expected = expected


class Unreadable(ValueError):
    """Raised for a text that is not a valid value of a configuration key; the exception states the
    reason."""


@attrs.frozen(kw_only=True)
class Description:
    """Describes a field: how its value is parsed and written, and its texts in the
    documentation."""

    doc: str                                # what it does, its unit
    change: str                             # when to change it
    expected: str                           # what is accepted, for error messages
    read: Callable[[Any], Any]              # TOML value to field value; ValueError when it is not
    accepts: Callable[[Any], bool]          # is a field value in range
    write: Callable[[Any], str]             # field value to TOML text


def description(attribute: attrs.Attribute[Any]) -> Description:
    found = attribute.metadata[METADATA]
    assert isinstance(found, Description)
    return found


def _validate(_instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    about = description(attribute)
    if not about.accepts(value):
        raise FieldError(attribute.name, value, about.expected)


def _make(default: Any, about: Description) -> Any:
    return attrs.field(default=default, validator=_validate, metadata={METADATA: about})


# ---- kinds ---------------------------------------------------------------------------------------


def integer(default: int, low: int, high: int, doc: str, change: str) -> Any:
    return _make(default, Description(
        doc=doc, change=change, expected=f"an integer in {low}..{high}", read=_read_integer,
        accepts=lambda value: type(value) is int and low <= value <= high, write=str,
    ))


def size(default: int, low: int, high: int, doc: str, change: str, *,
         power_of_two: bool = False, multiple_of: int = 1) -> Any:
    """Create a field for a number of bytes; a file states an integer, or a text with the suffix k,
    m or g."""
    expected = f"{write_size(low)}..{write_size(high)} bytes, as a number or text like \"64k\""
    if power_of_two:
        expected += ", a power of two"
    elif multiple_of > 1:
        expected += f", a multiple of {multiple_of}"

    def accepts(value: Any) -> bool:
        return (type(value) is int and low <= value <= high and value % multiple_of == 0
                and not (power_of_two and value & (value - 1)))

    return _make(default, Description(
        doc=doc, change=change, expected=expected, read=_read_size, accepts=accepts,
        write=lambda value: _quoted_unless_plain(write_size(value)),
    ))


def depth(doc: str, change: str) -> Any:
    """Create a field for the depth of a queue; a file states a number of bytes, or a text such as
    "64k", "100msg" or "64k,100msg". If the file does not set the key, the field states no depth."""

    def read(value: Any) -> uri.Depth:
        if type(value) is int or value == "0":
            value = str(value)
            if value == "0":
                return uri.Depth()
        if type(value) is not str:
            raise TypeError
        try:
            return uri.read_depth("depth", value)
        except ValueError as error:
            raise Unreadable(str(error)) from error

    return _make(uri.Depth(), Description(
        doc=doc, change=change, expected=f"{uri.DEPTH_FORM}, as a number of bytes or text, or 0",
        read=read, accepts=lambda value: isinstance(value, uri.Depth),
        write=lambda value: _quoted_unless_plain(str(value)),
    ))


def duration(default: int, doc: str, change: str, *, low: int = 1) -> Any:
    """Create a field for a number of nanoseconds; a file states an integer, or a text with the
    suffix ns, us, ms or s."""
    return _make(default, Description(
        doc=doc, change=change, expected=_DURATION_FORM.format(write_duration(low)),
        read=_read_duration, accepts=lambda value: type(value) is int and low <= value < 2**62,
        write=lambda value: f'"{write_duration(value)}"',
    ))


def optional_duration(doc: str, change: str) -> Any:
    """Create a field for an optional duration; if the file does not set the key, the value is
    None."""
    return _make(None, Description(
        doc=doc, change=change, expected=_DURATION_FORM.format(write_duration(1)),
        read=_read_duration,
        accepts=lambda value: value is None or (type(value) is int and 1 <= value < 2**62),
        write=lambda value: f'"{write_duration(value)}"',
    ))


def boolean(default: bool, doc: str, change: str) -> Any:
    return _make(default, Description(
        doc=doc, change=change, expected="true or false", read=lambda value: value,
        accepts=lambda value: type(value) is bool, write=lambda value: str(value).lower(),
    ))


def choice(default: str, words: tuple[str, ...], doc: str, change: str) -> Any:
    expected = "one of " + ", ".join(f'"{word}"' for word in words)
    return _make(default, Description(
        doc=doc, change=change, expected=expected, read=lambda value: value,
        accepts=lambda value: type(value) is str and value in words,
        write=lambda value: f'"{value}"',
    ))


def text(default: str, pattern: str, expected: str, doc: str, change: str) -> Any:
    compiled = re.compile(pattern)
    return _make(default, Description(
        doc=doc, change=change, expected=expected, read=lambda value: value,
        accepts=lambda value: type(value) is str and compiled.fullmatch(value) is not None,
        write=lambda value: f'"{value}"',
    ))


def parsed_text(default: str, parse: Callable[[str], object], expected: str, doc: str,
                change: str) -> Any:
    """A field for text. ``parse`` checks the text of the value, and raises ValueError with the
    reason if the text is invalid."""

    def read(value: Any) -> Any:
        if type(value) is not str:
            raise TypeError
        try:
            parse(value)
        except ValueError as error:
            raise Unreadable(str(error)) from error
        return value

    def accepts(value: Any) -> bool:
        try:
            read(value)
        except (ValueError, TypeError):
            return False
        return True

    return _make(default, Description(
        doc=doc, change=change, expected=expected, read=read, accepts=accepts,
        write=lambda value: f'"{value}"',
    ))


def optional_integer(low: int, high: int, doc: str, change: str) -> Any:
    return _make(None, Description(
        doc=doc, change=change, expected=f"an integer in {low}..{high}", read=_read_integer,
        accepts=lambda value: value is None or (type(value) is int and low <= value <= high),
        write=str,
    ))


def percent(default: float, doc: str, change: str) -> Any:
    return _make(default, Description(
        doc=doc, change=change, expected="a number in 0..100", read=_read_number,
        accepts=lambda value: type(value) is float and 0.0 <= value <= 100.0,
        write=lambda value: f"{value:g}" if value % 1 else f"{int(value)}",
    ))


def ratio(default: float, doc: str, change: str) -> Any:
    return _make(default, Description(
        doc=doc, change=change, expected="a number in 0..1", read=_read_number,
        accepts=lambda value: type(value) is float and 0.0 <= value <= 1.0,
        write=lambda value: f"{value:g}" if value % 1 else f"{int(value)}",
    ))


def port_range(doc: str, change: str) -> Any:
    def accepts(value: Any) -> bool:
        return value == (0, 0) or (
            isinstance(value, tuple) and len(value) == 2
            and all(type(port) is int for port in value)
            and 1 <= value[0] <= value[1] <= 65535
        )

    return _make((0, 0), Description(
        doc=doc, change=change, expected="[low, high] with 1 <= low <= high <= 65535, or [0, 0]",
        read=_read_pair, accepts=accepts, write=lambda value: f"[{value[0]}, {value[1]}]",
    ))


def file_mode(default: int, doc: str, change: str) -> Any:
    return _make(default, Description(
        doc=doc, change=change, expected=
            'octal permission bits of the directory as text, like "0660"',
        read=_read_mode, accepts=lambda value: type(value) is int and 0 <= value <= 0o777,
        write=lambda value: f'"{value:04o}"',
    ))


# ---- readers and writers -------------------------------------------------------------------------


def _read_integer(value: Any) -> int:
    if type(value) is not int:
        raise ValueError
    return value


def _read_number(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError
    return float(value)


def _read_size(value: Any) -> int:
    if type(value) is int:
        return value
    match = re.fullmatch(r"([0-9]{1,18})([kmg]?)", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError
    return int(match[1]) * SIZE_UNITS[match[2]]


def _read_duration(value: Any) -> int:
    if type(value) is int:
        return value
    match = re.fullmatch(r"([0-9]{1,18})(ns|us|ms|s)", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError
    return int(match[1]) * DURATION_UNITS[match[2]]


def _read_pair(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError
    return tuple(value)


def _read_mode(value: Any) -> int:
    if not isinstance(value, str) or not re.fullmatch(r"0?[0-7]{3}", value):
        raise ValueError
    return int(value, 8)


def _quoted_unless_plain(text: str) -> str:
    return text if text.isdigit() else f'"{text}"'
