# SPDX-License-Identifier: Apache-2.0
"""Actions for congestion controls that are classes in Python.  As those of :mod:`.actions`."""

from __future__ import annotations

import attrs

from penstock.core.congestion import CongestionView
from penstock.daemon.conductor.actions.base import Action


@attrs.frozen(kw_only=True)
class ReadCongestion(Action):
    """Read the part of an image's state that a congestion control needs. Result: a CongestionView:
    the state of the image, and the values of this action's fields."""

    image_id: int
    session_id: int
    stream_id: int
    term_length: int
    mtu: int


@attrs.frozen(kw_only=True)
class RunCongestion(Action):
    """Call the Python class of an image's congestion control. Result: StrategyAnswer. If the user's
    code never returns, the conductor gets no result."""

    image_id: int
    view: CongestionView
    now_ns: int


@attrs.frozen(kw_only=True)
class SetCongestionWindow(Action):
    image_id: int
    window: int                         # bytes; the receiver clips it


@attrs.frozen(kw_only=True)
class SetWindowShare(Action):
    """Limit the receiver window of an image. The image's subscription divides its window among its
    images (``ps-fanin``)."""

    image_id: int
    window: int                         # bytes, a multiple of 32; 0: the window is not divided
