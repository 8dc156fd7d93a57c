# SPDX-License-Identifier: Apache-2.0
"""Exceptions for refused group requests."""

from __future__ import annotations

from penstock.config.protocol import control
from penstock.errors import GroupOwned, GroupRefused, UnknownGroup, UnreliableStream


def refusal(failure: control.Failure) -> GroupRefused:
    """Return the exception to raise when the daemon answers a request about a consumer group with
    the message ``Failure``."""
    kind = {
        "unknown_group": UnknownGroup, "owned": GroupOwned, "unreliable": UnreliableStream,
    }.get(failure.code, GroupRefused)
    return kind(failure.message, code=failure.code)
