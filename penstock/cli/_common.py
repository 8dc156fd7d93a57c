# SPDX-License-Identifier: Apache-2.0
"""Define options, parameter types and output functions that several commands share."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from penstock.client._defaults import DEFAULT_REATTACH_S, DEFAULT_TIMEOUT_S

if TYPE_CHECKING:
    from penstock.client import Client, Publication

_F = TypeVar("_F", bound=Callable[..., Any])
#: A shorter wait is not reported.
_SILENT_S: Final = 1.0
_SCALES: Final = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_QUANTITY: Final = re.compile(r"^\s*(\d+(?:\.\d*)?|\.\d+)\s*([kKmMgG]?)\s*(?:/s)?\s*$")


def parse_rate(value: str) -> float:
    """Parse messages a second: ``5000``, ``5k/s``, ``1.5M``."""
    match = _QUANTITY.match(value)
    if match is None or float(match[1]) <= 0:
        raise click.BadParameter(
            f"{value!r} is not a rate: give a number of messages a second, such as 5000 or 5k/s"
        )
    return float(match[1]) * _SCALES[match[2].lower()]


def parse_count(value: str) -> int:
    """Parse a number of messages: ``1000``, ``10k``, ``2M``."""
    match = _QUANTITY.match(value)
    number = float(match[1]) * _SCALES[match[2].lower()] if match is not None else -1.0
    if number < 0 or number != int(number) or "/s" in value:
        raise click.BadParameter(
            f"{value!r} is not a number of messages: give one such as 1000 or 10k"
        )
    return int(number)


class _StreamId(click.IntRange):
    name = "stream id"


STREAM_ID = _StreamId(-(2**31), 2**31 - 1)


def directory_option(function: _F) -> _F:
    return click.option(
        "--dir",
        "directory",
        metavar="DIR",
        help="The daemon's directory.  Default: $PENSTOCK_DIR, then /dev/shm/penstock-$USER.",
    )(function)


def reattach_option(function: _F) -> _F:
    return click.option(
        "--reattach",
        "reattach_s",
        type=click.FloatRange(min=0),
        default=DEFAULT_REATTACH_S,
        show_default=True,
        metavar="SECONDS",
        help="Wait so long for a new daemon of a daemon that dies; 0: end with it.",
    )(function)


def connect_option(function: _F) -> _F:
    return click.option(
        "--connect-timeout",
        "connect_s",
        type=click.FloatRange(min=0, min_open=True),
        default=DEFAULT_TIMEOUT_S,
        show_default=True,
        metavar="SECONDS",
        help="Wait so long for a daemon that is still starting.",
    )(function)


def connected(directory: str | None, name: str, connect_s: float, reattach_s: float) -> Client:
    """Connect to the daemon and return the client. If no daemon has answered after one second,
    report this on standard error."""
    from penstock.client._connect import Attempt, wait_for

    return wait_for(
        Attempt(
            directory, name=name, timeout_s=connect_s, reattach_timeout_s=reattach_s,
            on_waiting=tell,
        )
    )


def wait_for_receiver(publication: Publication, timeout_s: float) -> bool:
    """Wait for a receiver. If no receiver has connected after one second, print on standard error
    that the command waits for a receiver. False: none came within ``timeout_s``.
    """
    if publication.wait_connected(min(timeout_s, _SILENT_S)):
        return True
    if timeout_s <= _SILENT_S:
        return False
    tell(
        f"waiting for a receiver of stream {publication.stream_id} on {publication.channel}, "
        f"{timeout_s:g} s at most"
    )
    return publication.wait_connected(timeout_s - _SILENT_S)


def tell(text: str) -> None:
    """Print a line about the progress of the command on standard error."""
    print(f"penstock: {text}", file=sys.stderr, flush=True)


def json_option(function: _F) -> _F:
    return click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")(
        function
    )


def print_json(value: Any, *, indent: int | None = None) -> None:
    """Print one JSON value and a line end on standard output."""
    sys.stdout.write(json.dumps(value, indent=indent, default=_plain) + "\n")
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return str(value)
