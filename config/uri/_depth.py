# SPDX-License-Identifier: Apache-2.0
"""The depth of a queue: ``ps-depth`` and ``ps-sub-depth``."""

from __future__ import annotations

from typing import Final

import attrs

from penstock.config.units import write_size
from penstock.config.uri._values import ChannelError, integer, size

MAX_BYTES: Final = 1 << 30
MAX_MESSAGES: Final = 1 << 30
FORM: Final = "bytes (64k), messages (100msg), or both (64k,100msg)"


@attrs.frozen(kw_only=True)
class Depth:
    """Depth of a queue, written as ``64k`` (bytes), ``100msg`` (messages), or both. The queue is
    full when one of the stated limits is reached. 0 means that the limit is not stated."""

    bytes: int = 0
    messages: int = 0

    def __bool__(self) -> bool:
        return bool(self.bytes or self.messages)

    def __str__(self) -> str:
        parts = [write_size(self.bytes)] if self.bytes or not self.messages else []
        if self.messages:
            parts.append(f"{self.messages}msg")
        return ",".join(parts)


def read_depth(key: str, text: str) -> Depth:
    found: dict[str, int] = {}
    for part in text.split(","):
        if part.endswith("msg"):
            name, value = "messages", integer(1, MAX_MESSAGES)(key, part.removesuffix("msg"))
        else:
            name, value = "bytes", size(32, MAX_BYTES)(key, part)
        if name in found:
            raise ChannelError(key, text, "states one limit twice", FORM)
        found[name] = value
    return Depth(**found)
