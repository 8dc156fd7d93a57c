# SPDX-License-Identifier: Apache-2.0
"""Kinds of classes of the user's that a daemon runs."""

from __future__ import annotations

import enum


class StrategyKind(enum.Enum):
    """The subject of a class of the user's; the value is the parameter of the channel."""

    FLOW = "fc"
    CONGESTION = "cc"
