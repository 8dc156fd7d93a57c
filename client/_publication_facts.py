# SPDX-License-Identifier: Apache-2.0
"""Values that publications return."""

from __future__ import annotations

from typing import NamedTuple

import attrs


class BatchResult(NamedTuple):
    """Result of ``offer_batch``."""

    accepted: int
    """Messages that are in the stream now: the first ``accepted`` of the batch."""
    position: int
    """Position after the last accepted one, or the :class:`Offer` code when none was."""


@attrs.frozen(kw_only=True)
class RemoteRejection:
    """A receiver rejected the stream with ERR frames. ``source`` is the receiver's address.
    ``count`` is the number of ERR frames that have arrived from this receiver, which sends its ERR
    frame repeatedly."""

    receiver_id: int
    source: str
    code: int
    message: str
    count: int = 1


@attrs.frozen(kw_only=True)
class PublicationStatistics:
    """State of a publication at one moment. Positions and window are in bytes."""

    channel: str
    stream_id: int
    session_id: int
    position: int
    position_limit: int
    available_window: int
    is_connected: bool
