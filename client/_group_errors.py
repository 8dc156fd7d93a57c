# SPDX-License-Identifier: Apache-2.0
"""The exception that a refusal of a group request becomes."""

from __future__ import annotations

from penstock.config.protocol import control
from penstock.errors import GroupOwned, GroupRefused, UnknownGroup, UnreliableStream


def refusal(failure: control.Failure) -> GroupRefused:
    """The exception that a Failure stands for."""
    kind = {
        "unknown_group": UnknownGroup, "owned": GroupOwned, "unreliable": UnreliableStream,
    }.get(failure.code, GroupRefused)
    return kind(failure.message, code=failure.code)
