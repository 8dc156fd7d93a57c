# SPDX-License-Identifier: Apache-2.0
"""Actions for congestion controls that are classes in Python.  As those of :mod:`.actions`."""

from __future__ import annotations

import attrs

from penstock.core.congestion import CongestionView
from penstock.daemon.conductor.actions.base import Action


@attrs.frozen(kw_only=True)
class ReadCongestion(Action):
    """Read the state of an image that a congestion control needs. Result: CongestionView, which
    also contains the fields of this action."""

    image_id: int
    session_id: int
    stream_id: int
    term_length: int
    mtu: int


@attrs.frozen(kw_only=True)
class RunCongestion(Action):
    """Calls a congestion control in Python.  Result: StrategyAnswer, perhaps never."""

    image_id: int
    view: CongestionView
    now_ns: int


@attrs.frozen(kw_only=True)
class SetCongestionWindow(Action):
    image_id: int
    window: int                         # bytes; the receiver clips it
