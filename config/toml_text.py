# SPDX-License-Identifier: Apache-2.0
"""Parse TOML. If a text is not TOML, the parser raises ValueError with one line of text."""

from __future__ import annotations

import gc
import tomllib
from collections.abc import Callable
from typing import Any


def parse_toml(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Parse a TOML text and return its tables.

    If the text has too deeply nested brackets, the parser exhausts Python's stack. If garbage
    collection ran on the exhausted stack, finalizers would fail too, and each would print a
    traceback. The function therefore turns Python's garbage collection off while the TOML parser
    runs.

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
