# SPDX-License-Identifier: Apache-2.0
"""Manage a query's subscription on the Spark driver. The object keeps the subscription's consumer
groups on every daemon alive, reads their state, and acknowledges data. If a daemon does not answer,
the object repeats the request for the time that the option ``retry`` states."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import socket
import threading
import time
from collections.abc import Callable, Container, Mapping
from typing import Any, Final, Literal, TypeVar

from penstock.client import (
    CurveKeys,
    DaemonUnreachable,
    GroupControl,
    GroupError,
    GroupOwned,
    GroupRefused,
    GroupState,
    LogMarks,
    UnknownGroup,
    UnreliableStream,
)
from penstock.client._directory import daemon_directory, not_allowed
from penstock.client._group_port import SOCKET_NAME as GROUPS_SOCKET
from penstock.client._groups import CreditAction
from penstock.core.errors import (
    ClosedError,
    ConfigurationError,
    InvalidArgument,
    PenstockError,
)
from penstock.spark_bridge import _joints, _times
from penstock.spark_bridge import _listening as listening
from penstock.spark_bridge._offsets import Session
from penstock.spark_bridge._options import Daemon, SourceOptions, StreamName
from penstock.spark_bridge._owner import is_dead
from penstock.spark_bridge._owner import token as owner_token
from penstock.spark_bridge._planner import Holding, View, Want

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_ATTEMPT_S: Final = 5.0
_CHECK_S: Final = 5.0
_PAUSE_S: Final = 0.2
_MOST_WARNINGS: Final = 1000
_ALIVE_PARTS: Final = 4          # of the expiry time
_ALIVE_MOST_S: Final = 4.0       # for a daemon a silent reader is dead after 8 s
_CONNECT_S: Final = 1.0
_readers: Final = itertools.count()     # of this process
#: Errors of a daemon whose host does not have a channel's address; another host may have it.
_ELSEWHERE: Final = frozenset({"no_interface", "address_in_use"})
#: Errors that are the same on every daemon.
_WRONG: Final = frozenset({"invalid_channel", "permission"})


def control_of(
    daemon: Daemon, key_file: str | None, *, timeout_s: float = _ATTEMPT_S
) -> GroupControl:
    """Return a connection to one of the daemons that the options name.

    :raises InvalidArgument: an option is wrong; the exception's text names the option.
    """
    if daemon.address is None:
        return GroupControl(directory=daemon.directory, timeout_s=timeout_s)
    try:
        keys = CurveKeys.load(key_file or "")
    except ConfigurationError as error:
        raise InvalidArgument(f"option keyFile: {error}") from None
    return GroupControl(
        address=daemon.address, keys=keys, server_key=daemon.server_key, timeout_s=timeout_s
    )


def check_reachable(options: SourceOptions) -> None:
    """Check that all daemons answer, before a query starts.

    If no process listens at a daemon's address, the function raises within about a second.
    :raises InvalidArgument: a daemon does not answer; the exception's text names the option and the
    remedy.
    """
    check_listening(options)
    for daemon in options.daemons:
        with contextlib.closing(
            control_of(daemon, options.key_file, timeout_s=_CHECK_S)
        ) as control:
            try:
                control.groups()
            except GroupError as error:
                raise InvalidArgument(_unreachable(daemon, f"{error}.")) from None


def check_listening(options: SourceOptions) -> None:
    """Check that a process listens at the socket or the TCP address of each daemon.

    :raises InvalidArgument: no process listens, or this user may not connect; the exception's text
        names the option and the remedy. The function raises within a second.
    """
    for daemon in options.daemons:
        refusal = _connection_refused(daemon)
        if refusal is not None:
            raise InvalidArgument(_unreachable(daemon, refusal))


def _connection_refused(daemon: Daemon) -> str | None:
    """Return the reason why no connection is possible; None: a process listens.

    :raises InvalidArgument: this user may not connect.
    """
    if daemon.address is not None:
        host, _, port = daemon.address.removeprefix("tcp://").rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
        except (OSError, ValueError, OverflowError) as error:
            return f"{error}."
        return None
    path = daemon_directory(daemon.directory) / GROUPS_SOCKET
    refusal = listening.refusal(path)
    if isinstance(refusal, PermissionError):
        raise InvalidArgument(f"option daemonDir: {not_allowed(path)}")
    return None if refusal is None else f"{path}: {refusal.strerror or refusal}."


def _unreachable(daemon: Daemon, why: str) -> str:
    if daemon.address is not None:
        return f"option control={daemon.address}: no daemon answers: {why}"
    return (
        f"option daemonDir: no daemon in {daemon.name}: {why} Start one with 'penstock daemon', "
        "name its directory with daemonDir, or a daemon of another host with control"
    )


def _unreliable(channel: str, what: str) -> str:
    return (
        f"option channel={channel}: {what} Use unicast, fc=min or fc=tagged at the publisher, or "
        "accept losses with failOnDataLoss=false"
    )


class SubscriptionInUse(PenstockError):
    """Another query reads the subscription."""


class Subscription:
    """The groups of one query. Spark's planning process creates and uses the subscription object.
    The threads that keep consumer groups alive start when the first group is opened. Each daemon
    has its own keep-alive thread, so that a slow daemon does not delay the other daemons."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._controls = [
            control_of(daemon, options.key_file) for daemon in options.daemons
        ]
        self._owner = owner_token(next(_readers))
        self._reads = True              # not for a batch, which never owns a group
        self._open: set[tuple[int, StreamName]] = set()
        self._elsewhere: set[tuple[int, StreamName]] = set()
        self._heard = [0.0] * len(self._controls)
        self._stopping = threading.Event()
        self._keepers: list[threading.Thread] = []
        self._warned: set[str] = set()

    # ---- groups ----------------------------------------------------------------------------------

    def open(self, resumed: Container[StreamName] = (), *, keep: bool = False) -> None:
        """Open the groups.

        The option startingOffsets determines the position at which a new query joins a live stream.
        A query that has read the stream before joins at the oldest retained position. If ``keep``
        is true, the call does not change the expiry time of a consumer group that already exists.
        :raises InvalidArgument: no daemon accepts a channel.
        :raises SubscriptionInUse: another query reads the subscription.
        """
        self._reads = not keep
        for stream in self._existing_first():
            refusals: list[GroupRefused] = []
            latest = self._options.starting == "latest" and stream not in resumed
            first: Literal["latest", "earliest"] = "latest" if latest else "earliest"
            for daemon in range(len(self._controls)):
                key = (daemon, stream)
                if key in self._open or key in self._elsewhere:
                    continue
                try:
                    if not (keep and self._is_there(daemon, stream)):
                        self._open_group(daemon, stream, first)
                except UnreliableStream as error:
                    raise InvalidArgument(_unreliable(stream.channel, str(error))) from None
                except GroupRefused as error:
                    where = self._options.daemons[daemon]
                    if error.code in _WRONG:
                        raise InvalidArgument(
                            f"option channel={stream.channel}, at {where.name}: {error}"
                        ) from None
                    if error.code not in _ELSEWHERE:
                        raise
                    refusals.append(error)
                    self._elsewhere.add(key)
                    self._log_elsewhere(where, stream, error)
            if not any((d, stream) in self._open for d in range(len(self._controls))):
                raise InvalidArgument(
                    f"option channel={stream.channel}: no daemon accepts this channel: "
                    f"{refusals[-1]}"
                ) from None
        if not self._keepers:
            self._keepers = [
                threading.Thread(
                    target=self._keep_alive, args=(daemon,), name="penstock-keep-alive", daemon=True
                )
                for daemon in range(len(self._controls))
            ]
            for keeper in self._keepers:
                keeper.start()

    def _existing_first(self) -> list[StreamName]:
        """Return the streams of the query. The first are those that already have a consumer group:
        if another query reads one of these groups, this query is refused before it has opened new
        groups for other streams, which would limit their senders until they expire.
        """
        streams = list(self._options.streams)
        if self._open or len(streams) < 2:
            return streams
        there = {
            StreamName(channel=group.channel, stream_id=group.stream_id)
            for _daemon, group in self.groups() if group.name == self._options.subscription
        }
        return sorted(streams, key=lambda stream: stream not in there)

    def _log_elsewhere(self, daemon: Daemon, stream: StreamName, error: GroupRefused) -> None:
        """Log that the query continues without the daemon, for example because its host does not
        have the address."""
        level = logging.INFO if error.code == "no_interface" else logging.WARNING
        _log.log(
            level, "subscription %s: %s stream %d is not read from %s: %s",
            self._options.subscription, stream.channel, stream.stream_id, daemon.name, error,
        )

    def _open_group(
        self, daemon: int, stream: StreamName, starting: Literal["latest", "earliest"]
    ) -> GroupState:
        options = self._options

        def attempt(dead: str) -> GroupState:
            return self._patiently(lambda: self._controls[daemon].open(
                name=options.subscription, channel=stream.channel, stream_id=stream.stream_id,
                sessions=options.sessions, starting=starting, expiry_ns=options.expiry_ns,
                allow_unreliable=not options.fail_on_data_loss,
                owner=self._owner if self._reads else "", instead_of=dead,
            ))

        state = self._in_turn(daemon, stream, attempt)
        self._open.add((daemon, stream))
        self._heed(state)
        return state

    def _in_turn(
        self, daemon: int, stream: StreamName, attempt: Callable[[str], GroupState]
    ) -> GroupState:
        """Open the group after its last reader has gone: at once if that reader has left or is
        known to be dead, else after it was silent for some seconds."""
        dead, silent_ns = "", -1
        while True:
            try:
                return attempt(dead)
            except GroupOwned as error:
                refusal = error
            state = self._controls[daemon].state(
                name=self._options.subscription, channel=stream.channel,
                stream_id=stream.stream_id,
            )
            if is_dead(state.owner):
                dead = state.owner
                continue
            if not dead and state.owner and state.owner_heard_ns < silent_ns:
                raise self._in_use(stream, refusal) from None      # it sends requests: it lives
            if state.owner:
                silent_ns = state.owner_heard_ns
            if self._stopping.wait(_PAUSE_S):
                raise refusal

    def _in_use(self, stream: StreamName, refusal: GroupOwned) -> SubscriptionInUse:
        return SubscriptionInUse(
            f"option subscription={self._options.subscription}: another query reads it: {refusal}"
        )

    def _is_there(self, daemon: int, stream: StreamName) -> bool:
        try:
            self._patiently(lambda: self._controls[daemon].state(
                name=self._options.subscription, channel=stream.channel,
                stream_id=stream.stream_id,
            ))
        except UnknownGroup:
            return False
        self._open.add((daemon, stream))
        return True

    def _heed(self, state: GroupState) -> None:
        """Report each warning about the streams once, also about streams that appear later.

        :raises InvalidArgument: a stream does not wait for the query, and losses are not accepted.
        """
        if self._options.fail_on_data_loss and state.unreliable:
            raise InvalidArgument(_unreliable(state.channel, f"{state.unreliable[0]}."))
        for warning in state.warnings:
            if warning not in self._warned and len(self._warned) < _MOST_WARNINGS:
                self._warned.add(warning)
                _log.warning("subscription %s: %s", self._options.subscription, warning)

    def view(self, acknowledged: Mapping[Session, int] | None = None) -> View:
        """Send the acknowledgements, and then return the daemons' state. If a consumer group has
        expired, open the group again; the planner decides whether data is missing."""
        states = []
        for daemon in range(len(self._controls)):
            began = time.monotonic()
            for stream in self._streams(daemon):
                states.append((daemon, self._state(daemon, stream, acknowledged or {})))
            self._heard[daemon] = began
        return View.of(states)

    def _state(
        self, daemon: int, stream: StreamName, acknowledged: Mapping[Session, int]
    ) -> GroupState:
        positions = {
            (session.session_id, session.initial_term_id): position
            for session, position in acknowledged.items() if session.stream == stream
        }
        control = self._controls[daemon]
        name = self._options.subscription
        owner = self._owner if self._reads else ""

        def request() -> GroupState:
            if not positions:
                return control.state(
                    name=name, channel=stream.channel, stream_id=stream.stream_id, owner=owner
                )
            return control.acknowledge(
                name=name, channel=stream.channel, stream_id=stream.stream_id,
                positions=positions, owner=owner,
            )

        try:
            state = self._patiently(request)
            self._heed(state)
            return state
        except GroupOwned as error:
            raise self._in_use(stream, error) from None
        except UnknownGroup:
            _log.warning(
                "subscription %s: its group of %s stream %d no longer exists (it expired, or the "
                "daemon restarted): opening a new group", name, stream.channel, stream.stream_id,
            )
            return self._open_group(daemon, stream, "earliest")

    def credits(self, action: CreditAction) -> list[dict[str, Any]]:
        """Withhold, resume or report the credits of the query's groups. Return the state of each
        session's credits at each daemon."""
        name = self._options.subscription
        readers: list[dict[str, Any]] = []
        for daemon in range(len(self._controls)):
            for stream in self._streams(daemon):
                request = functools.partial(
                    self._controls[daemon].stream_credits, stream.stream_id,
                    channel=stream.channel, group=name, action=action,
                )
                readers += self._patiently(request).readers.values()
        return readers

    def others(self, marks: Mapping[StreamName, str]) -> list[str]:
        """Consumer groups in ``marks`` may belong to other subscriptions. Return the names of these
        subscriptions. An earlier query with another subscription name has left these groups behind.
        In ``marks``, each group is written as in offsets: the id of the daemon, a dot, and the id
        of the group.
        """
        wanted = {mark for text in marks.values() for mark in text.split()}
        found = {
            group.name for _daemon, group in self.groups()
            if f"{group.daemon_id:x}.{group.group_id:x}" in wanted
        }
        return sorted(found - {self._options.subscription})

    def groups(self) -> list[tuple[int, GroupState]]:
        """Return all groups of all daemons that answer, each with the number of its daemon in the
        query's options."""
        found: list[tuple[int, GroupState]] = []
        for daemon, control in enumerate(self._controls):
            with contextlib.suppress(GroupError):
                found += [(daemon, group) for group in control.groups()]
        return found

    def cut(self, want: Want, *, max_messages: int = 0) -> tuple[int, int]:
        """Return the position at which the batch must end in the session of ``want``, and the
        number of messages of the batch in this session. If no message is complete, this position is
        the start of the batch.
        """

        def one(part: Want, most: int) -> tuple[int, int]:
            places, messages = self.cut_places(
                part, max_bytes=part.max_bytes, max_messages=most, pieces=1
            )
            return (places[-1], messages) if places else (part.start, 0)

        return _joints.cut(want, max_messages, one, self._frames)

    def _frames(self, holding: Holding, start: int, end: int) -> list[bytes]:
        """Return the frames of a log from ``start`` on, as many as a message can have."""
        log = holding.log
        end = min(end, start + 2 * log.term_length)
        return self._patiently(lambda: list(self._controls[holding.daemon].fetch(
            log_id=log.log_id, session_id=log.session_id, initial_term_id=log.initial_term_id,
            start=start, end=end,
        )))

    def cut_places(
        self, want: Want, *, max_bytes: int, max_messages: int, pieces: int
    ) -> tuple[list[int], int]:
        """Return positions at which the range ``want`` can be divided, and the number of messages.
        Each position lies between two messages. If the range extends over several logs, all
        positions are in the first of these logs. See :meth:`penstock.client.GroupControl.cut`.
        """
        log = want.holding.log
        cuts = self._patiently(lambda: self._controls[want.holding.daemon].cut(
            log_id=log.log_id, session_id=log.session_id, initial_term_id=log.initial_term_id,
            start=want.start, max_bytes=max_bytes, max_messages=max_messages, pieces=pieces,
        ))
        return cuts.positions, cuts.messages

    def find(self, want: Want, start: int, max_bytes: int, reserved_value: int) -> LogMarks:
        """Return the messages of a session that have the reserved value ``reserved_value``. Search
        ``max_bytes`` of the session's log, from the position ``start`` on.

        :raises RangeNotRetained: no daemon retains the log any more.
        """

        def one(part: Want, start: int, max_bytes: int) -> LogMarks:
            log = part.holding.log
            return self._patiently(lambda: self._controls[part.holding.daemon].find(
                log_id=log.log_id, session_id=log.session_id,
                initial_term_id=log.initial_term_id, start=start, reserved_value=reserved_value,
                max_bytes=max_bytes,
            ))

        return _joints.find(want, start, max_bytes, reserved_value, one, self._frames)

    def times(self, want: Want, end: int, *, most: int) -> str:
        """Return the arrival times of a session's messages from the start of ``want`` to ``end``,
        encoded as in offsets; return an empty text if the times are unknown.

        :raises RangeNotRetained: no daemon retains the log any more.
        """
        entries: list[tuple[int, int]] = []
        at = want.start
        for holding in want.logs:
            edge = holding.log.end_position
            if at < min(edge, end):
                found = self._times_of(holding, at, min(edge, end), most // len(want.logs))
                # The last entry may lie behind the log's end, but says nothing of the next log.
                last = holding is want.logs[-1]
                entries += [(p if last else min(p, edge), time_ns) for p, time_ns in found]
                at = edge
        return _times.bounded([p for p, _ in entries], [t for _, t in entries], want.start, end)

    def _times_of(
        self, holding: Holding, start: int, end: int, most: int
    ) -> list[tuple[int, int]]:
        log = holding.log
        try:
            found = self._patiently(lambda: self._controls[holding.daemon].times(
                log_id=log.log_id, session_id=log.session_id, initial_term_id=log.initial_term_id,
                start=start, end=end, most=max(most, 2),
            ))
        except GroupRefused as error:
            if error.code != "malformed":       # an older daemon sends them with the state
                raise
            return [(at, when) for at, when in log.time_index]
        return list(zip(found.positions, found.times_ns, strict=True))

    # ---- life ------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the keep-alive. Close the connections. The consumer groups stay until they expire, so
        that a restarted query finds them. This query no longer owns the groups, so a restarted
        query need not wait until it can own them."""
        self._stopping.set()
        if self._reads:
            # otherwise the daemon notices it later
            with contextlib.suppress(GroupError, ClosedError):
                for daemon, stream in sorted(self._open, key=str):
                    self._controls[daemon].state(
                        name=self._options.subscription, channel=stream.channel,
                        stream_id=stream.stream_id, owner=self._owner, leave=True,
                    )
        deadline = time.monotonic() + _ATTEMPT_S
        for keeper in self._keepers:
            keeper.join(max(0.0, deadline - time.monotonic()))
        for control in self._controls:
            control.close()

    def _patiently(self, call: Callable[[], _T]) -> _T:
        """Repeat a call while its daemon is away, as long as option retry allows."""
        deadline = time.monotonic() + self._options.retry_ns / 1e9
        while True:
            try:
                return call()
            except DaemonUnreachable as error:
                if time.monotonic() >= deadline or self._stopping.is_set():
                    raise
                _log.warning("subscription %s: %s", self._options.subscription, error)
            time.sleep(_PAUSE_S)

    def _keep_alive(self, daemon: int) -> None:
        period = min(self._options.expiry_ns / 1e9 / _ALIVE_PARTS, _ALIVE_MOST_S)
        while not self._stopping.wait(period / 2):
            if time.monotonic() - self._heard[daemon] < period / 2:
                continue
            for stream in self._streams(daemon):
                # The query reports an error at its next request.
                with contextlib.suppress(GroupError, ClosedError):
                    self._controls[daemon].state(
                        name=self._options.subscription, channel=stream.channel,
                        stream_id=stream.stream_id, owner=self._owner if self._reads else "",
                    )

    def _streams(self, daemon: int) -> list[StreamName]:
        return sorted((stream for where, stream in list(self._open) if where == daemon), key=str)
