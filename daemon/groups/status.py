# SPDX-License-Identifier: Apache-2.0
"""Consumer groups as the status, the metrics and ``penstock flows`` show them."""

from __future__ import annotations

import attrs

from penstock.core.driver_types import SlotKind
from penstock.core.errors import PenstockError
from penstock.daemon.conductor.actions import ViewLog
from penstock.daemon.conductor.sagas.reliance import strategy_name
from penstock.daemon.conductor.sagas.retention import view_of, window_of
from penstock.daemon.conductor.state.model import Group
from penstock.daemon.conductor.state.state import State
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
    credit_bytes: int                   # what the sender may still send before it is held
    ended: bool


@attrs.frozen(kw_only=True)
class GroupStatus:
    group_id: int
    name: str
    channel: str
    stream_id: int
    expires_s: float
    lag_bytes: int
    credit_bytes: int                   # of the log that has least; -1: it holds none
    logs: list[GroupLogStatus]


def group_status(state: State, group: Group, logs: GroupLogs, *, now_ns: int) -> GroupStatus:
    """One group now."""
    rows = []
    for subscription in group.client.subscriptions.values():
        for link in subscription.links.values():
            source = link.source
            check = view_of(source, link.counter_id)
            rows.append(_row(logs, check, source.session_id, window_of(source),
                             strategy=strategy_name(state, source)))
    for kept in group.retained.values():
        live = state.images.get(kept.log_id) or state.publications.get(kept.log_id)
        if live is not None:
            check = view_of(live, kept.counter_id)
        else:
            check = ViewLog(
                log_id=kept.log_id, path=kept.log.path, committed_counter_id=kept.counter_id,
                end_counter_id=-1, kind=SlotKind.IMAGE, slot=-1,
            )
        rows.append(_row(logs, check, kept.session_id, kept.window_bytes, ended=kept.ended,
                         end=kept.end_position))
    found = [row for row in rows if row is not None]
    live_rows = [row.credit_bytes for row in found if not row.ended]
    return GroupStatus(
        group_id=group.id, name=group.name, channel=group.channel, stream_id=group.stream_id,
        expires_s=max(0, group.deadline_ns - now_ns) / 1e9,
        lag_bytes=sum(row.lag_bytes for row in found),
        credit_bytes=min(live_rows) if live_rows else -1,
        logs=found,
    )


def _row(
    logs: GroupLogs, check: ViewLog, session_id: int, window: int, *, strategy: str = "",
    ended: bool = False, end: int = 0,
) -> GroupLogStatus | None:
    try:
        view = logs.view(check)
    except PenstockError:
        return None                     # went meanwhile
    reach = end if ended else view.end_position
    committed = min(view.committed, reach)
    return GroupLogStatus(
        log_id=check.log_id, session_id=session_id, strategy=strategy, committed=committed,
        end_position=reach, lag_bytes=reach - committed, window_bytes=window,
        credit_bytes=0 if ended else max(0, window - (reach - committed)), ended=ended,
    )
