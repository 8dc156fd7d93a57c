# SPDX-License-Identifier: Apache-2.0
"""Kinds of user classes that a daemon runs."""

from __future__ import annotations

import enum


class StrategyKind(enum.Enum):
    """Kind of a user class; the value is the channel parameter that names it."""

    FLOW = "fc"
    CONGESTION = "cc"
