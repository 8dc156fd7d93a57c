# SPDX-License-Identifier: Apache-2.0
"""Read the daemon's configuration. The error text for a mistake names the file, the key, the value
found and the value expected."""

from __future__ import annotations

import difflib
import functools
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs
import cattrs
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, override

from penstock.config.settings._fields import METADATA, FieldError, Unreadable, description
from penstock.config.settings.models import ARRAYS, DaemonConfig
from penstock.config.toml_text import parse_toml
from penstock.core.errors import ConfigurationError

DEFAULT_FILE: Final = Path(__file__).parent.with_name("penstock.toml")
"""The annotated file with every key at its default."""

_ELSEWHERE: Final = {
    "governor": "unknown key, expected governor = true in the table scheduler",
}


@attrs.frozen(kw_only=True)
class Problem:
    """One mistake in a file."""

    file: str
    key: str            # dotted path, "" for the file as a whole
    got: str
    expected: str

    def __str__(self) -> str:
        where = f"{self.file}: {self.key}" if self.key else self.file
        got = f" is {self.got}," if self.got else ""
        return f"{where}:{got} {self.expected}"


class ConfigFileError(ConfigurationError):
    """Raised for an invalid configuration file; ``problems`` lists all mistakes."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        more = len(problems) - 1
        tail = f" (and {more} more: penstock config check)" if more else ""
        super().__init__(f"{problems[0]}{tail}")


def load_file(path: str | Path) -> DaemonConfig:
    """Return the configuration that a file contains.  Raises :class:`ConfigFileError`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise _failed(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _failed(str(path), "is not UTF-8 text") from None
    return load_text(text, source=str(path))


def load_text(text: str, *, source: str = "configuration") -> DaemonConfig:
    """Return the configuration in a TOML text. Errors call the text ``source``."""
    try:
        tables = parse_toml(text)
    except ValueError as error:
        raise _failed(source, f"is not TOML: {error}") from None
    try:
        return _converter().structure(tables, DaemonConfig)
    except (ClassValidationError, FieldError) as error:
        problems = tuple(
            Problem(file=source, key=key, got=got, expected=expected)
            for key, got, expected in _leaves(error, ())
        )
        raise ConfigFileError(problems) from None


def check_file(path: str | Path) -> tuple[Problem, ...]:
    """Return all mistakes of a configuration file; the list is empty if the file is valid."""
    try:
        load_file(path)
    except ConfigFileError as error:
        return error.problems
    return ()


def _failed(source: str, what: str) -> ConfigFileError:
    return ConfigFileError((Problem(file=source, key="", got="", expected=what),))


# ---- structuring ---------------------------------------------------------------------------------


def _reader(attribute: attrs.Attribute[Any]) -> Callable[[Any, Any], Any]:
    about = description(attribute)

    def read(value: Any, _type: Any) -> Any:
        try:
            found = about.read(value)
        except Unreadable as error:
            raise FieldError(
                attribute.name, value, f"{about.expected} ({error})"
            ) from None
        except (ValueError, TypeError):
            raise FieldError(attribute.name, value, about.expected) from None
        if not about.accepts(found):
            raise FieldError(attribute.name, value, about.expected)
        return found

    return read


def _structure_table(converter: cattrs.Converter, table: type[Any]) -> Callable[[Any, Any], Any]:
    hooks: dict[str, Any] = {
        a.name: override(struct_hook=_reader(a))
        for a in attrs.fields(table) if METADATA in a.metadata
    }
    structure = make_dict_structure_fn(
        table, converter, _cattrs_forbid_extra_keys=True, _cattrs_detailed_validation=True, **hooks
    )

    def checked(value: Any, target: Any) -> Any:
        if not isinstance(value, dict):
            raise FieldError("", value, "a table")
        return structure(value, target)

    return checked


@functools.cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter()
    attrs.resolve_types(DaemonConfig)
    for name, kind in ARRAYS.items():
        converter.register_structure_hook(kind, _structure_table(converter, kind))
        converter.register_structure_hook_func(
            functools.partial(operator.eq, tuple[kind, ...]),   # type: ignore[valid-type]
            functools.partial(_rules, converter, name, kind),
        )
    for attribute in attrs.fields(DaemonConfig):
        table = attribute.type
        assert table is not None
        if attribute.name in ARRAYS:
            continue
        converter.register_structure_hook(table, _structure_table(converter, table))
    converter.register_structure_hook(DaemonConfig, _structure_table(converter, DaemonConfig))
    return converter


def _rules(
    converter: cattrs.Converter, name: str, kind: type[Any], value: Any, _type: Any
) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise FieldError(name, value, f"an array of tables, [[{name}]]")
    rules = []
    wrong = []
    for number, item in enumerate(value, 1):
        try:
            rules.append(converter.structure(item, kind))
        except (ClassValidationError, FieldError) as error:
            wrong.append(_Numbered(number, error))
    if wrong:
        raise ExceptionGroup(f"[[{name}]]", wrong)
    return tuple(rules)


class _Numbered(Exception):
    """Mistakes in the n-th table of an array."""

    def __init__(self, number: int, error: Exception) -> None:
        super().__init__(str(error))
        self.number = number
        self.error = error


# ---- errors --------------------------------------------------------------------------------------


def _leaves(error: BaseException, path: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
    """Yield (key, got, expected) for each part of an error."""
    if isinstance(error, ForbiddenExtraKeysError):
        for name in sorted(map(str, error.extra_fields)):
            yield ".".join((*path, name)), "", _unknown(name, error.cl)
    elif isinstance(error, _Numbered):
        yield from _leaves(error.error, (*path[:-1], f"{path[-1]}[{error.number}]"))
    elif isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            names = [n.name for n in getattr(inner, "__notes__", ()) if hasattr(n, "name")]
            yield from _leaves(inner, (*path, *names))
    elif isinstance(error, FieldError):
        key = ".".join(path) if path else error.key
        yield key, _shown(error.got), f"expected {error.expected}"
    else:
        yield ".".join(path), "", str(error)


def _unknown(name: str, table: type[Any]) -> str:
    if table is DaemonConfig and name in _ELSEWHERE:
        return _ELSEWHERE[name]
    known = [a.name for a in attrs.fields(table)]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return "unknown key, " + (
        f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
