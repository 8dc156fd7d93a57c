# SPDX-License-Identifier: Apache-2.0
"""Kinds of classes that users write and a daemon runs: flow controls and congestion controls."""

from __future__ import annotations

import enum


class StrategyKind(enum.Enum):
    """Kind of a class that a user wrote; the value is the channel parameter in which the class is
    named."""

    FLOW = "fc"
    CONGESTION = "cc"
