# SPDX-License-Identifier: Apache-2.0
"""The input of congestion controls that are written as Python classes
(docs/congestion-control.md)."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class CongestionView:
    """The input of a congestion control in Python. Each total is a sum since the beginning of the
    image. The daemon reads the values one after the other, so the values can belong to different
    duty cycles of the receiver.
    """

    session_id: int
    stream_id: int
    term_length: int                    # bytes
    mtu: int                            # bytes
    window: int                         # bytes that may be in flight; 0: no window is in force
    least: int                          # bounds of an answer, bytes
    most: int
    received: int                       # bytes of the stream that arrived
    consumed: int                       # bytes that the slowest subscriber has read
    granted: int                        # bytes that the sender may have sent
    losses: int                         # passes of the receiver that found new loss
    missing: int                        # bytes of open gaps
    rtt_ns: int                         # smoothed round trip, 0: not measured yet
    least_rtt_ns: int                   # smallest sample, 0: not measured yet
