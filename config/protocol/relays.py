# SPDX-License-Identifier: Apache-2.0
"""Paths of relays: lists of the ids of all relays that a stream has passed, in this order."""

from __future__ import annotations

from typing import Any, Final

from attrs import validators

MAX_RELAYS: Final = 8
RELAY_PATH: Final[Any] = validators.and_(
    validators.max_len(MAX_RELAYS),
    validators.deep_iterable(validators.and_(validators.gt(0), validators.lt(2**64))),
)
