# SPDX-License-Identifier: Apache-2.0
"""Collect data about consumer groups for the daemon's status, its metrics and ``penstock
flows``."""

from __future__ import annotations

import attrs

from penstock.core.errors import PenstockError
from penstock.daemon.conductor.snapshot import GroupLogSnapshot, GroupSnapshot
from penstock.daemon.groups.logs import GroupLogs


@attrs.frozen(kw_only=True)
class GroupLogStatus:
    log_id: int
    session_id: int
    strategy: str                       # flow control of its sender, "" unknown, or it has ended
    committed: int
    end_position: int
    lag_bytes: int
    window_bytes: int
    window_left_bytes: int              # bytes that the sender may still send before it waits
    ended: bool


@attrs.frozen(kw_only=True)
class GroupStatus:
    group_id: int
    name: str
    channel: str
    stream_id: int
    expires_s: float
    lag_bytes: int
    window_left_bytes: int              # of the log with the least; -1: the group holds none
    logs: list[GroupLogStatus]


def group_status(group: GroupSnapshot, logs: GroupLogs, *, now_ns: int) -> GroupStatus:
    """Return the present status of a group."""
    rows = (_row(logs, log) for log in group.logs)
    found = [row for row in rows if row is not None]
    live = [row.window_left_bytes for row in found if not row.ended]
    return GroupStatus(
        group_id=group.id, name=group.name, channel=group.channel, stream_id=group.stream_id,
        expires_s=max(0, group.deadline_ns - now_ns) / 1e9,
        lag_bytes=sum(row.lag_bytes for row in found),
        window_left_bytes=min(live) if live else -1,
        logs=found,
    )


def _row(logs: GroupLogs, log: GroupLogSnapshot) -> GroupLogStatus | None:
    try:
        view = logs.view(log.view)
    except PenstockError:
        return None                     # went meanwhile
    reach = log.end_position if log.ended else view.end_position
    committed = min(view.committed, reach)
    lag = reach - committed
    return GroupLogStatus(
        log_id=log.view.log_id, session_id=log.session_id, strategy=log.strategy,
        committed=committed, end_position=reach, lag_bytes=lag, window_bytes=log.window_bytes,
        window_left_bytes=0 if log.ended else max(0, log.window_bytes - lag), ended=log.ended,
    )
