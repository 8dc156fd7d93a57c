# SPDX-License-Identifier: Apache-2.0
"""Parse TOML; a text that is not TOML raises one exception with one line."""

from __future__ import annotations

import gc
import tomllib
from collections.abc import Callable
from typing import Any


def parse_toml(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Return the tables of a text.

    Brackets nested too deep exhaust Python's stack. A garbage collection at that depth would run
    finalizers that also fail, and each failure would print a traceback. Garbage collection is
    therefore off until the parser has returned.

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
