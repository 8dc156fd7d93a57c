# SPDX-License-Identifier: Apache-2.0
"""The two kinds of classes that users can write for the daemon: flow controls and congestion
controls."""

from __future__ import annotations

import enum


class StrategyKind(enum.Enum):
    """Kind of a user's class. The value of each kind is the channel parameter that names a class of
    this kind."""

    FLOW = "fc"
    CONGESTION = "cc"
