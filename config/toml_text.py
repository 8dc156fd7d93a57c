# SPDX-License-Identifier: Apache-2.0
"""Parse TOML. If a text is not TOML, the parser raises ValueError, and the error's message is a
single line."""

from __future__ import annotations

import gc
import tomllib
from collections.abc import Callable
from typing import Any


def parse_toml(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Parse a TOML text and return its tables.

    If the text nests brackets too deeply, the parser reaches Python's recursion limit. If Python's
    garbage collector ran a finalizer at this depth, the finalizer would fail too, and print a
    traceback. The function therefore turns the garbage collection off while the TOML parser runs.

    :raises ValueError: the text is not TOML; the exception states the reason.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return tomllib.loads(text, parse_float=parse_float)
    except RecursionError:
        raise ValueError("brackets are nested too deep (recursion)") from None
    finally:
        if collects:
            gc.enable()
