# SPDX-License-Identifier: Apache-2.0
"""Relay paths. A stream's path lists the ids of the relays that forwarded the stream, beginning
with the relay next to the publisher."""

from __future__ import annotations

from typing import Any, Final

from attrs import validators

MAX_RELAYS: Final = 8
RELAY_PATH: Final[Any] = validators.and_(
    validators.max_len(MAX_RELAYS),
    validators.deep_iterable(validators.and_(validators.gt(0), validators.lt(2**64))),
)
