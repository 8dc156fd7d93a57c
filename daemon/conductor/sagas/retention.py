# SPDX-License-Identifier: Apache-2.0
"""Logs that consumer groups keep.

While a stream is alive, its log keeps the data that a consumer group has not acknowledged, like the
unread data of any other subscriber. When a stream ends, the receiver releases the image, or the
sender releases the publication. The daemon keeps the ended stream's log file and a record of the
log. When the group has acknowledged all data, is closed, or expires, the daemon deletes the log
file and the record.
"""

from __future__ import annotations

import attrs

from penstock.config.protocol.control import MAX_TIMES
from penstock.core.driver_types import Address, SlotKind
from penstock.daemon.conductor.actions import (
    DeleteFile,
    FreeCounter,
    FreeSlot,
    LogView,
    RemoveImageSubscriber,
    RemovePublicationSubscriber,
    SetCounter,
    ViewLog,
)
from penstock.daemon.conductor.actions.times import ViewTimes
from penstock.daemon.conductor.saga import Refused, Saga
from penstock.daemon.conductor.state.brief_logs import BRIEF_NS, MOST_LOGS, SHARE
from penstock.daemon.conductor.state.model import (
    Group,
    Image,
    LogFile,
    Publication,
    Retained,
    SubscriberLink,
)
from penstock.daemon.conductor.state.registry import erase, note_retained
from penstock.daemon.conductor.state.state import State


@attrs.frozen(kw_only=True)
class Locate:
    """Request of the fetch service: find a log that a consumer group keeps, and return its path and
    its readable range."""

    log_id: int
    session_id: int
    initial_term_id: int


@attrs.frozen(kw_only=True)
class Located:
    """Answer to :class:`Locate`: the file ``path`` contains the log, and the range [lowest, end) of
    it can be read."""

    path: str
    lowest: int
    end: int


def view_of(source: Image | Publication, counter_id: int) -> ViewLog:
    """Return an action that reads two positions of a log: its end, and the position that a group
    has acknowledged (in the counter ``counter_id``)."""
    if isinstance(source, Image):
        return ViewLog(
            log_id=source.id, path=source.log.path, committed_counter_id=counter_id,
            end_counter_id=source.params.position_counter_id, kind=SlotKind.IMAGE, slot=source.slot,
        )
    return ViewLog(
        log_id=source.id, path=source.log.path, committed_counter_id=counter_id, end_counter_id=-1,
        kind=SlotKind.PUBLICATION, slot=source.slot,
    )


def window_of(source: Image | Publication) -> int:
    """Return the stream's window in bytes. When a group has this number of unacknowledged bytes,
    the sender waits for the group."""
    if isinstance(source, Image):
        return source.params.window_bytes
    return source.plan.window_bytes


def mtu_of(source: Image | Publication) -> int:
    if isinstance(source, Image):
        return source.mtu
    return source.plan.mtu


def group_of(state: State, link: SubscriberLink) -> Group | None:
    """Return the consumer group to which a link belongs, or None if the link belongs to a
    client."""
    return state.groups.get(link.subscription.client.group_id)


def detach_groups(state: State, source: Image | Publication) -> None:
    """When a stream ends, create a record of its log for each group that has not acknowledged all
    data of the stream. If the groups then keep too many logs of brief images, they drop some of
    these logs."""
    detached = False
    for link in list(source.subscribers.values()):
        group = group_of(state, link)
        if group is not None:
            _detach(state, group, link)
            detached = True
    surplus = state.brief_logs.surplus() if detached else None
    while surplus is not None:
        _drop_surplus(state, surplus)
        surplus = state.brief_logs.surplus()


def _drop_surplus(state: State, surplus: Retained) -> None:
    """Release a log of a brief image from all groups that keep the log."""
    for group in list(state.groups.values()):
        retained = group.retained.get(surplus.log_id)
        if retained is not None:
            state.error(
                "group dropped a log", Address(ip=surplus.brief_source, port=0),
                f"group {group.name} of stream {group.stream_id} loses unacknowledged data of "
                f"session {retained.session_id} from {surplus.brief_source}: the logs of streams "
                f"that ended within a minute exceed 1/{SHARE} of storage.budget, or {MOST_LOGS} "
                "logs",
            )
            release(state, group, retained)


def _brief_source(state: State, source: Image | Publication) -> str:
    """Return the IP address of a brief image's sender, or an empty text for other streams."""
    if isinstance(source, Image) and state.now_ns - source.established_ns < BRIEF_NS:
        return source.source.ip
    return ""


def _detach(state: State, group: Group, link: SubscriberLink) -> None:
    source = link.source
    retained = Retained(
        log_id=source.id, group_id=group.id, counter_id=link.counter_id, slot=link.slot,
        stream_id=source.stream_id, session_id=source.session_id,
        initial_term_id=source.initial_term_id, mtu=mtu_of(source), window_bytes=window_of(source),
        log=source.log, join_position=link.join_position,
        brief_source=_brief_source(state, source),
    )
    group.retained[source.id] = retained
    state.brief_logs.add(retained)
    note_retained(state, retained)
    if isinstance(source, Image):
        state.emit(RemoveImageSubscriber(image_id=source.id, position_counter_id=link.counter_id))
    else:
        state.emit(
            RemovePublicationSubscriber(
                publication_id=source.id, position_counter_id=link.counter_id
            )
        )
    source.subscribers.pop(link.subscription.id, None)
    link.subscription.links.pop(source.id, None)
    erase(state, "link", link.subscription.id, source.id)
    state.event(
        "group_retains", group=group.name, group_id=group.id, log_id=source.id,
        session_id=source.session_id, stream_id=source.stream_id,
    )


def settle(state: State, source: Image | Publication) -> None:
    """Record the end position of a log for the groups that keep it. Call ``settle`` after the data
    plane has released the log, because the log's end no longer changes then. The log's counters and
    slot must still exist."""
    for group in state.groups.values():
        retained = group.retained.get(source.id)
        if retained is not None:
            state.runner.start(
                _settle(state, group, retained, view_of(source, retained.counter_id)),
                lambda value, error: None,
            )


def settle_orphan(state: State, group: Group, retained: Retained) -> Saga[None]:
    """Record the end position of a dead daemon's log, as :func:`settle` does. Use this function if
    the log's image or publication could not be adopted."""
    yield from _settle(
        state, group, retained,
        ViewLog(
            log_id=retained.log_id, path=retained.log.path,
            committed_counter_id=retained.counter_id, end_counter_id=-1, kind=SlotKind.IMAGE,
            slot=-1,
        ),
    )


def _settle(state: State, group: Group, retained: Retained, check: ViewLog) -> Saga[None]:
    try:
        view: LogView = yield check
        while view.more:
            view = yield check
        times: tuple[tuple[int, int], ...] = yield ViewTimes(
            kind=check.kind, slot=check.slot, start=view.committed, end=view.end_position,
            most=MAX_TIMES,
        )
    except Refused as refused:              # its file is gone or damaged: there is nothing to keep
        state.error(
            "group lost a log", group.name,
            f"group {group.name} of stream {group.stream_id} on {group.channel}: its "
            f"unacknowledged data of session {retained.session_id} is lost: {refused.message}",
        )
        release(state, group, retained)
        return
    if group.retained.get(retained.log_id) is not retained:
        return
    retained.end_position = view.end_position
    retained.time_index = list(times)
    retained.ended = True
    note_retained(state, retained)
    if view.committed >= view.end_position:
        release(state, group, retained)


def release(state: State, group: Group, retained: Retained) -> None:
    """Release a log whose data the group has acknowledged."""
    if group.retained.pop(retained.log_id, None) is None:
        return
    erase(state, "retained", group.id, retained.log_id)
    state.let_go(retained.log_id, group.id)
    if not any(retained.log_id in other.retained for other in state.groups.values()):
        state.brief_logs.remove(retained.log_id)
    state.emit(FreeCounter(counter_id=retained.counter_id))
    state.emit(FreeSlot(kind=SlotKind.SUBSCRIBER, index=retained.slot))
    state.event(
        "group_released", group=group.name, group_id=group.id, log_id=retained.log_id,
        session_id=retained.session_id, stream_id=retained.stream_id,
    )
    if retained.log_id not in state.images and retained.log_id not in state.publications:
        drop_log(state, retained.log_id, retained.log)


def acknowledge_retained(
    state: State, group: Group, retained: Retained, position: int, view: LogView
) -> None:
    """Advance the group's position in the log of an ended stream."""
    state.hold(retained.log_id, group.id, position)
    if position > view.committed:
        state.emit(SetCounter(counter_id=retained.counter_id, value=position))
    if retained.ended and max(position, view.committed) >= retained.end_position:
        release(state, group, retained)


def drop_log(state: State, log_id: int, log: LogFile) -> None:
    """Delete a log that the sender or receiver has released, unless a consumer group keeps this
    log."""
    if any(log_id in group.retained for group in state.groups.values()):
        return
    state.emit(DeleteFile(path=log.path))
    state.storage.release(log.reserved_bytes)


def keep_log(state: State, group: Group, retained: Retained) -> None:
    """Adopt a log that a group of a dead daemon keeps."""
    source = state.images.get(retained.log_id) or state.publications.get(retained.log_id)
    others = [g.retained[retained.log_id] for g in state.groups.values()
              if retained.log_id in g.retained]
    if source is not None:
        retained.log = source.log
    elif others:
        retained.log = others[0].log
    else:
        state.storage.adopt(retained.log.reserved_bytes)
    group.retained[retained.log_id] = retained
    state.brief_logs.add(retained)
    note_retained(state, retained)
