# SPDX-License-Identifier: Apache-2.0
"""Actions on files of the daemon's directory: logs, the error log and the loss report."""

from __future__ import annotations

import attrs

from penstock.core.driver_types import LogParams
from penstock.daemon.conductor.actions.base import Action


@attrs.frozen(kw_only=True)
class CreateLog(Action):
    params: LogParams


@attrs.frozen(kw_only=True)
class DeleteFile(Action):
    path: str


@attrs.frozen(kw_only=True)
class ReserveTerm(Action):
    """Allocate a log's memory between two positions, ``position`` and ``end``, which lie in the
    same term."""

    path: str
    term_length: int
    position: int
    end: int


@attrs.frozen(kw_only=True)
class ReleaseLog(Action):
    """Release the memory of a log's terms, except the terms between the positions ``kept_from`` and
    ``kept_to``."""

    path: str
    term_length: int
    kept_from: int
    kept_to: int


@attrs.frozen(kw_only=True)
class SetStorage(Action):
    budget_bytes: int
    used_bytes: int


@attrs.frozen(kw_only=True)
class LogError(Action):
    """Write a text to the distinct error log."""

    text: str
    stranger: bool = False              # a datagram caused it


@attrs.frozen(kw_only=True)
class ReportLoss(Action):
    lost_bytes: int
    gaps: int                           # each is an observation
    session_id: int
    stream_id: int
    channel: str
    source: str
    settled: bool                       # the stream has lived for a minute


@attrs.frozen(kw_only=True)
class Warn(Action):
    """Write a warning to the daemon's text log, but not to the distinct error log."""

    text: str
