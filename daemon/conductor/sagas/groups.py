# SPDX-License-Identifier: Apache-2.0
"""Consumer groups: subscriptions that outlive their readers.

The conductor treats a group as a client that has no process. A group has subscriptions. If a group
blocks a publication, ``pressure()`` shows the name and id of the group as the culprit. Only
acknowledgements move its positions. For flow control, the acknowledged position of a group is like
the read position of a subscriber. The acknowledged position limits local and remote senders, and
determines the position in status messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from penstock.config import uri
from penstock.config.protocol.control import (
    MAX_CHANNEL_CHARS,
    AcknowledgeGroup,
    AddSubscription,
    CloseGroup,
    Done,
    Failure,
    GetGroup,
    GroupList,
    GroupReply,
    ListGroups,
    LogTimes,
    Message,
    OpenGroup,
    RangeGone,
    ReadTimes,
    WithholdStream,
)
from penstock.core.driver_types import SlotKind
from penstock.daemon.conductor.actions import (
    AllocateSlot,
    Answer,
    DescribeClient,
    DescribeGroup,
    FreeSlot,
    LogView,
    ReleaseTo,
    ViewLog,
)
from penstock.daemon.conductor.actions.times import ViewTimes
from penstock.daemon.conductor.channel.plans import parse, without_credits
from penstock.daemon.conductor.saga import Refused, Saga
from penstock.daemon.conductor.sagas import credits as credit_grants
from penstock.daemon.conductor.sagas.reliance import (
    check_reliable,
    links_of,
    unreliable,
    warnings_of,
)
from penstock.daemon.conductor.sagas.retention import (
    Locate,
    Located,
    acknowledge_retained,
    mtu_of,
    release,
    view_of,
    window_of,
)
from penstock.daemon.conductor.sagas.subscriptions import add_subscription, remove_subscription
from penstock.daemon.conductor.settings import SECOND_NS
from penstock.daemon.conductor.state.model import (
    Client,
    Group,
    Image,
    Joins,
    Publication,
    Retained,
    SubscriberLink,
)
from penstock.daemon.conductor.state.registry import erase, note_group
from penstock.daemon.conductor.state.state import State

GROUP_LIMIT: Final = 256                # of one daemon, whatever its slots
#: A reader that was not heard of for so long has gone; readers speak at least every 4 s.
OWNER_LEASE_NS: Final = 8 * SECOND_NS


# ---- commands ------------------------------------------------------------------------------------


def serve(state: State, request_id: int, message: Message | Locate) -> None:
    """Answer a request about consumer groups; the requesting program needs no lease."""

    def done(value: Any, error: Refused | None) -> None:
        answer = value
        if error is not None:
            answer = Failure(code=error.code, message=error.message)
        state.emit(Answer(request_id=request_id, message=answer))

    state.runner.start(_serve(state, message), done)


def _serve(state: State, message: Message | Locate) -> Saga[Message | Located]:
    match message:
        case Locate():
            return (yield from _locate(state, message))
        case WithholdStream():
            return (yield from credit_grants.serve(state, message))
        case ReadTimes():
            return (yield from _times(state, message))
        case OpenGroup():
            group = yield from _open(state, message)
            own(state, group, message.owner, instead_of=message.instead_of)
        case GetGroup():
            group = _find(state, message)
            own(state, group, message.owner)
            if message.leave and message.owner:
                group.owner = ""
        case AcknowledgeGroup():
            group = _find(state, message)
            own(state, group, message.owner)
            yield from _acknowledge(state, group, message)
        case CloseGroup():
            group = _find(state, message)
            close(state, group, "closed")
            return Done(registration_id=group.id)
        case ListGroups():
            found: dict[str, Any] = {}
            for group in list(state.groups.values()):
                found[str(group.id)] = yield from _described(state, group)
            return GroupList(groups=found)
        case _:
            raise Refused("malformed", f"{type(message).__name__} is not a request about groups")
    _touch(state, group)
    described = yield from _described(state, group)
    return GroupReply(group=described)


def check_owner(state: State, group: Group, owner: str, *, instead_of: str = "") -> None:
    """Refuse a reader if another reader has sent a request for the same group within the last
    ``OWNER_LEASE_NS``. The function never refuses a request that states no owner."""
    if not owner or owner == group.owner or not group.owner or group.owner == instead_of:
        return
    silent_ns = state.now_ns - group.owner_heard_ns
    if silent_ns < OWNER_LEASE_NS:
        raise Refused(
            "owned",
            f"group {group.name} of stream {group.stream_id} on {group.channel} is read by "
            f"{group.owner}, whose last request came {silent_ns / SECOND_NS:.1f} s ago: give each "
            "query a group of its own, or stop the other query",
        )


def own(state: State, group: Group, owner: str, *, instead_of: str = "") -> None:
    """If a request names an owner, record the owner as the reader of the group. If the group
    already has another reader, refuse the request."""
    if not owner:
        return
    check_owner(state, group, owner, instead_of=instead_of)
    if group.owner != owner:
        group.owner = owner
        note_group(state, group)
    group.owner_heard_ns = state.now_ns


def _find(state: State, message: GetGroup | AcknowledgeGroup | CloseGroup) -> Group:
    key = (message.name, message.channel, message.stream_id)
    group = _lookup(state, key)
    if group is None:
        raise Refused(
            "unknown_group",
            f"no group {message.name} of stream {message.stream_id} on {message.channel}: the "
            "group was never opened here, was closed, or has expired",
        )
    return group


def _lookup(state: State, key: tuple[str, str, int]) -> Group | None:
    return next((group for group in state.groups.values() if group.key == key), None)


# ---- opening -------------------------------------------------------------------------------------


def _open(state: State, message: OpenGroup) -> Saga[Group]:
    key = (message.name, message.channel, message.stream_id)
    group = _lookup(state, key)
    if group is not None:
        _compare(group, message)
        check_owner(state, group, message.owner, instead_of=message.instead_of)
        if group.expiry_ns != message.expiry_ns:
            group.expiry_ns = message.expiry_ns
            note_group(state, group)
            _touch(state, group)
            watch(state, group)         # a shorter time applies from now on
        return group
    if len(state.groups) >= GROUP_LIMIT:
        raise Refused("limit", f"{len(state.groups)} groups are open, which is the limit")
    channels = _channels(state, message)
    group = yield from _new(state, message)
    try:
        for channel in channels:
            yield from _subscribe(state, group, channel)
        other = _lookup(state, key)
        if other is not None:           # another client has opened it meanwhile
            _drop(state, group)
            _compare(other, message)
            return other
        check_reliable(state, group)
    except Refused:
        _drop(state, group)
        raise
    state.groups[group.id] = group
    note_group(state, group)
    _touch(state, group)
    watch(state, group)
    state.event(
        "group_opened", group=group.name, group_id=group.id, channel=group.channel,
        stream_id=group.stream_id,
    )
    return group


def _compare(group: Group, message: OpenGroup) -> None:
    if group.sessions != tuple(sorted(set(message.sessions))):
        raise Refused(
            "invalid_channel",
            f"group {group.name} of {group.channel} is open with sessions {list(group.sessions)}: "
            "use these sessions or another group name, or close the group first",
        )


def _channels(state: State, message: OpenGroup) -> list[str]:
    """Return the channels: one subscription for each session, or one for all."""
    parsed = parse(message.channel)
    _check_credits(state, message, parsed)
    if not message.sessions:
        return [message.channel]
    if parsed.session_id is not None:
        raise Refused(
            "invalid_channel",
            f"{message.channel}: the channel states a session-id, and the request also lists "
            "sessions: use only one of the two",
        )
    joint = "|" if "?" in message.channel else "?"
    found = [f"{message.channel}{joint}session-id={s}" for s in sorted(set(message.sessions))]
    longest = max(map(len, found))
    if longest > MAX_CHANNEL_CHARS:
        raise Refused(
            "invalid_channel",
            f"the channel with its session-id has {longest} characters, and at most "
            f"{MAX_CHANNEL_CHARS} are allowed: shorten the channel, or list no sessions",
        )
    return found


def _check_credits(state: State, message: OpenGroup, parsed: uri.ChannelUri) -> None:
    """Refuse a pool of a client, which a group is not part of, and a second group that differs from
    an open one only in its credits."""
    if parsed.ps_credit_pool == "client":
        raise Refused(
            "invalid_channel",
            f"{message.channel}: ps-credit-pool=client contradicts group {message.name}: a "
            "consumer group belongs to no client, so its credits are its own; leave ps-credit-pool "
            "out",
        )
    for group in state.groups.values():
        if (group.name, group.stream_id) != (message.name, message.stream_id):
            continue
        if without_credits(parse(group.channel)) == without_credits(parsed):
            raise Refused(
                "invalid_channel",
                f"group {group.name} of stream {group.stream_id} is open on {group.channel}: state "
                f"the same credits instead of {message.channel}, or end the group first",
            )


def _new(state: State, message: OpenGroup) -> Saga[Group]:
    group_id = state.next_id()
    slot: int = yield AllocateSlot(kind=SlotKind.GROUP, object_id=group_id)
    try:
        client_slot: int = yield AllocateSlot(kind=SlotKind.CLIENT, object_id=group_id)
    except Refused:
        state.emit(FreeSlot(kind=SlotKind.GROUP, index=slot))
        raise
    client = make_client(state, group_id, client_slot, message.name)
    return Group(
        id=group_id, client=client, slot=slot, name=message.name, channel=message.channel,
        stream_id=message.stream_id, sessions=tuple(sorted(set(message.sessions))),
        starting=message.starting, expiry_ns=message.expiry_ns,
        allow_unreliable=message.allow_unreliable,
    )


def make_client(state: State, group_id: int, slot: int, name: str) -> Client:
    """Create the client object of a group. The client and the group have the same id."""
    client = Client(id=group_id, slot=slot, name=name, pid=0, uid=0, group_id=group_id)
    state.clients[client.id] = client
    state.emit(DescribeClient(slot=slot, pid=0, uid=0, name=name))
    return client


def _subscribe(state: State, group: Group, channel: str) -> Saga[None]:
    yield from add_subscription(
        state, group.client, AddSubscription(channel=channel, stream_id=group.stream_id),
        lambda ready: None,
        joins=Joins.OLDEST if group.starting == "earliest" else Joins.NEWEST,
    )
    for subscription in group.client.subscriptions.values():
        subscription.joins = Joins.OLDEST       # all data of streams that appear from now on


# ---- state ---------------------------------------------------------------------------------------


def _described(state: State, group: Group) -> Saga[dict[str, Any]]:
    """Return the group as plain data: :class:`penstock.client.GroupState`."""
    logs = []
    for link in links_of(group):
        source = link.source
        try:
            view: LogView = yield view_of(source, link.counter_id)
        except Refused:
            continue                    # it has ended meanwhile
        state.hold(source.id, group.id, view.committed)
        if link.acknowledged > view.committed < view.end_position:
            _release_to(state, group, link, min(link.acknowledged, view.end_position))
        logs.append(
            _log(
                group, view, log_id=source.id, session_id=source.session_id,
                initial_term_id=source.initial_term_id, mtu=mtu_of(source),
                term_length=source.log.term_length, path=source.log.path, ended=False,
                window=window_of(source),
            )
        )
    for retained in list(group.retained.values()):
        try:
            view = yield from view_retained(state, retained)
        except Refused:
            continue
        state.hold(retained.log_id, group.id, view.committed)
        logs.append(
            _log(
                group, view, log_id=retained.log_id, session_id=retained.session_id,
                initial_term_id=retained.initial_term_id, mtu=retained.mtu,
                term_length=retained.log.term_length, path=retained.log.path,
                ended=retained.ended, window=retained.window_bytes,
            )
        )
    expires_ns = max(0, group.deadline_ns - state.now_ns)
    _describe(state, group, logs, expires_ns)
    return {
        "name": group.name, "channel": group.channel, "stream_id": group.stream_id,
        "group_id": group.id, "daemon_id": state.settings.daemon_id,
        "daemon_epoch": state.settings.daemon_epoch, "host": state.settings.host,
        "expires_ns": expires_ns, "owner": group.owner,
        "owner_heard_ns": max(0, state.now_ns - group.owner_heard_ns) if group.owner else 0,
        "warnings": warnings_of(state, group),
        "unreliable": unreliable(state, group), "logs": logs,
    }


def view_retained(state: State, retained: Retained) -> Saga[LogView]:
    """Return the state of a log that a group retains. The log's stream has ended or is about to
    end."""
    source: Image | Publication | None = state.images.get(retained.log_id)
    if source is None:
        source = state.publications.get(retained.log_id)
    if source is not None and not retained.ended:
        view: LogView = yield view_of(source, retained.counter_id)
        return view
    view = yield ViewLog(
        log_id=retained.log_id, path=retained.log.path, committed_counter_id=retained.counter_id,
        end_counter_id=-1, kind=SlotKind.IMAGE, slot=-1,
    )
    if not retained.ended:
        return view
    return LogView(
        committed=min(view.committed, retained.end_position), end_position=retained.end_position,
    )


def _locate(state: State, message: Locate) -> Saga[Located | RangeGone]:
    """Return the place of a log that a group keeps, and the range that can be read."""
    path, end = "", 0
    for group in list(state.groups.values()):
        for link in links_of(group):
            source = link.source
            if _is(message, source.id, source.session_id, source.initial_term_id):
                view: LogView = yield view_of(source, link.counter_id)
                state.hold(source.id, group.id, view.committed)
                path, end = source.log.path, max(end, view.end_position)
        retained = group.retained.get(message.log_id)
        if retained is not None and \
                _is(message, retained.log_id, retained.session_id, retained.initial_term_id):
            view = yield from view_retained(state, retained)
            state.hold(retained.log_id, group.id, view.committed)
            path, end = retained.log.path, max(end, view.end_position)
    floor = state.floor(message.log_id)
    if not path or floor is None:
        return RangeGone(
            lowest=0, end=0,
            message=f"no group keeps log {message.log_id} of session {message.session_id} (any "
            "more)",
        )
    return Located(path=path, lowest=floor, end=end)


def _times(state: State, message: ReadTimes) -> Saga[LogTimes | RangeGone]:
    """Return the times at which a log that a group keeps reached its positions."""
    for group in list(state.groups.values()):
        for link in links_of(group):
            source = link.source
            if _is(message, source.id, source.session_id, source.initial_term_id):
                look = view_of(source, link.counter_id)
                return (yield from _read_times(message, look.kind, look.slot))
        kept = group.retained.get(message.log_id)
        if kept is None or \
                not _is(message, kept.log_id, kept.session_id, kept.initial_term_id):
            continue
        live = state.images.get(kept.log_id) or state.publications.get(kept.log_id)
        if live is not None and not kept.ended:
            look = view_of(live, kept.counter_id)
            return (yield from _read_times(message, look.kind, look.slot))
        known = [
            entry for n, entry in enumerate(kept.time_index)
            if entry[0] > message.start and (n == 0 or kept.time_index[n - 1][0] < message.end)
        ]
        if len(known) <= message.most:
            return _reply(known)
        return (yield from _read_times(message, SlotKind.IMAGE, -1, known))
    return RangeGone(
        lowest=0, end=0,
        message=f"no group keeps log {message.log_id} of session {message.session_id} (any more)",
    )


def _read_times(
    message: ReadTimes, kind: SlotKind, slot: int, known: Sequence[tuple[int, int]] = ()
) -> Saga[LogTimes]:
    found = yield ViewTimes(
        kind=kind, slot=slot, start=message.start, end=message.end, most=message.most, known=known
    )
    return _reply(found)


def _reply(found: Sequence[tuple[int, int]]) -> LogTimes:
    return LogTimes(positions=[e[0] for e in found], times_ns=[e[1] for e in found])


def _is(message: Locate | ReadTimes, log_id: int, session_id: int, initial_term_id: int) -> bool:
    return (message.log_id, message.session_id, message.initial_term_id) == (
        log_id, session_id, initial_term_id
    )


def _log(
    group: Group, view: LogView, *, log_id: int, session_id: int, initial_term_id: int, mtu: int,
    term_length: int, path: str, ended: bool, window: int,
) -> dict[str, Any]:
    return {
        "log_id": log_id, "channel": group.channel, "stream_id": group.stream_id,
        "session_id": session_id, "initial_term_id": initial_term_id, "term_length": term_length,
        "mtu": mtu, "log_path": path, "retained_from": view.committed, "committed": view.committed,
        "end_position": view.end_position, "ended": ended, "window_bytes": window,
        "time_index": [],               # ReadTimes has them
    }


def _describe(
    state: State, group: Group, logs: list[dict[str, Any]], expires_ns: int
) -> None:
    """Show the log with the largest lag in the group's slot."""
    behind = max(logs, key=lambda log: log["end_position"] - log["committed"], default=None)
    state.emit(
        DescribeGroup(
            slot=group.slot, committed=0 if behind is None else behind["committed"],
            retained_from=0 if behind is None else behind["retained_from"], expires_ns=expires_ns,
        )
    )


# ---- acknowledging -------------------------------------------------------------------------------


def _acknowledge(state: State, group: Group, message: AcknowledgeGroup) -> Saga[None]:
    wanted: dict[tuple[int, int], int] = {}
    rows = zip(message.sessions, message.initial_term_ids, message.positions, strict=True)
    for session_id, initial_term_id, position in rows:
        if position % 32:
            raise Refused(
                "malformed",
                f"position {position} of session {session_id} is not the start of a frame",
            )
        key = (session_id, initial_term_id)
        wanted[key] = max(position, wanted.get(key, 0))
    for link in links_of(group):
        source = link.source
        position = wanted.get((source.session_id, source.initial_term_id), 0)
        if position > 0 and link.subscription.plan.credits:
            # Messages beyond the end cannot be counted yet: _described releases them later.
            link.acknowledged = max(position, link.acknowledged)
            try:
                view: LogView = yield view_of(source, link.counter_id)
            except Refused:
                continue                # it has ended meanwhile
            position = min(position, view.end_position)
        if position > 0:
            _release_to(state, group, link, position)
    for retained in list(group.retained.values()):
        position = wanted.get((retained.session_id, retained.initial_term_id), 0)
        if position > 0:
            view = yield from view_retained(state, retained)
            acknowledge_retained(state, group, retained, position, view)


def _release_to(state: State, group: Group, link: SubscriberLink, position: int) -> None:
    """Advance the group's position in a live log, and return the credits of the messages."""
    source = link.source
    state.hold(source.id, group.id, position)   # before the data plane may zero the memory
    state.emit(
        ReleaseTo(
            position=position, position_counter_id=link.counter_id, subscriber_slot=link.slot,
            publication_slot=source.slot if isinstance(source, Publication) else -1,
            credit_path=source.log.path if link.subscription.plan.credits else "",
        )
    )


# ---- the end -------------------------------------------------------------------------------------


def _touch(state: State, group: Group) -> None:
    group.deadline_ns = state.now_ns + group.expiry_ns


def watch(state: State, group: Group) -> None:
    """End a group when no request for the group has arrived during its expiry time."""

    group.watches += 1
    number = group.watches

    def check() -> None:
        if state.groups.get(group.id) is not group or group.watches != number:
            return
        if state.now_ns < group.deadline_ns:
            watch(state, group)
            return
        state.groups_expired += 1
        state.error(
            "group expired", group.name,
            f"group {group.name} of stream {group.stream_id} on {group.channel} has "
            f"expired: no request came for {group.expiry_ns / SECOND_NS:g} s; its "
            "unacknowledged data is released",
        )
        close(state, group, "expired")

    state.timers.at(group.deadline_ns, check)


def close(state: State, group: Group, reason: str) -> None:
    """End a group, and release the data that it retains, so that the senders no longer wait for the
    group."""
    state.groups.pop(group.id, None)
    erase(state, "group", group.id)
    for retained in list(group.retained.values()):
        release(state, group, retained)
    _drop(state, group)
    state.event(
        f"group_{reason}", group=group.name, group_id=group.id, channel=group.channel,
        stream_id=group.stream_id,
    )


def _drop(state: State, group: Group) -> None:
    """Remove the client of the group with its subscriptions."""
    client = group.client
    client.alive = False
    for subscription in list(client.subscriptions.values()):
        remove_subscription(state, subscription)
    state.clients.pop(client.id, None)
    state.emit(FreeSlot(kind=SlotKind.GROUP, index=group.slot))
    state.timers.at(
        state.now_ns + SECOND_NS,
        partial(state.emit, FreeSlot(kind=SlotKind.CLIENT, index=client.slot)),
    )


def adopt_group(state: State, group_id: int, fields: dict[str, Any]) -> None:
    """Adopt a group of a dead daemon. The conductor calls this function before it creates the
    subscriptions of an adopted group."""
    values = dict(fields)
    values["sessions"] = tuple(values["sessions"])
    client_id, client_slot = values.pop("client_id"), values.pop("client_slot")
    assert client_id == group_id
    client = make_client(state, group_id, client_slot, values["name"])
    group = Group(id=group_id, client=client, **values)
    group.owner_heard_ns = state.now_ns
    state.groups[group.id] = group
    note_group(state, group)
    _touch(state, group)
    watch(state, group)
