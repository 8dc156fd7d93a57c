# SPDX-License-Identifier: Apache-2.0
"""Consumer groups: named subscriptions that the daemon keeps without a client.

Only an acknowledgement advances the position of a group. Reading data does not advance the
position. A reader on the daemon's host can read the mapped log; a reader on any host can call
:meth:`GroupControl.fetch`. Unacknowledged data stays in the log; when this data fills the group's
window, the sender waits. If no request for a group arrives during its expiry time, the daemon ends
the group, and the sender no longer waits for the group.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeAlias

import attrs

from penstock.client._directory import daemon_directory
from penstock.client._group_port import Endpoint, GroupPort
from penstock.config.protocol import control
from penstock.config.protocol.keys import CurveKeys
from penstock.core.errors import InvalidArgument

_FETCH_CREDIT = 4
#: Action of :meth:`GroupControl.stream_credits`.
CreditAction: TypeAlias = Literal["withhold", "resume", "report"]


@attrs.frozen(kw_only=True)
class LogRange:
    """The part of a session's log that the daemon keeps for a consumer group."""

    log_id: int
    """Registration id of the image or publication on that daemon."""
    channel: str
    stream_id: int
    session_id: int
    initial_term_id: int
    """With ``session_id`` the stream's epoch: a publisher that starts anew has another."""
    term_length: int
    mtu: int
    log_path: str
    """Valid on the daemon's host only."""
    retained_from: int
    """The lowest position that is kept; the start of a frame."""
    committed: int
    """Acknowledged; never below ``retained_from``."""
    end_position: int
    """Everything below it is there; a frame ends here."""
    ended: bool
    """The stream has ended, and ``end_position`` is final."""
    window_bytes: int
    """The most that may be unacknowledged before the sender is held."""
    time_index: list[tuple[int, int]]
    """(position, epoch ns) of some frames, ascending; of daemons without :meth:`GroupControl.times`
    only."""


@attrs.frozen(kw_only=True)
class LogCuts:
    """Positions at which a batch can be split, in ascending order; the last one is the end of the
    batch. Each position lies between two messages."""

    positions: list[int]
    """The last is the end of a batch, those before it split it.  None: no message is complete."""
    messages: int
    """In the batch."""


@attrs.frozen(kw_only=True)
class LogTimes:
    """Times at which a log received its data: all data below ``positions[i]`` arrived at the time
    ``times_ns[i]`` or earlier. Both lists are ascending."""

    positions: list[int]
    times_ns: list[int]
    """Epoch ns: the log was at the position at that time at the latest."""


@attrs.frozen(kw_only=True)
class LogMark:
    """A message that :meth:`GroupControl.find` found by its reserved value."""

    begin: int
    end: int
    """It lies at [begin, end)."""
    payload: bytes
    """Its first 2048 bytes at most."""


@attrs.frozen(kw_only=True)
class LogMarks:
    """Messages of a log that have a given reserved value, ordered by position."""

    marks: list[LogMark]
    position: int
    """A place between messages: all before it was looked at."""


@attrs.frozen(kw_only=True)
class GroupState:
    """State of a group at one moment."""

    name: str
    channel: str
    stream_id: int
    group_id: int
    daemon_id: int
    daemon_epoch: int
    host: str
    expires_ns: int
    """From now, unless something is heard."""
    warnings: list[str]
    unreliable: list[str]
    """Of the warnings those of streams that certainly do not wait for the group."""
    logs: list[LogRange]
    owner: str = ""
    """The reader, as it calls itself; empty: nobody reads it."""
    owner_heard_ns: int = 0
    """How long ago the reader was heard of."""


class GroupControl:
    """A connection to the consumer groups of one daemon. Give the directory of a daemon on this
    host, or the TCP address of any daemon and CURVE keys. Calls block until the daemon answers;
    several threads may use a :class:`GroupControl`. The object connects to the daemon at the first
    call, and again after a fork of the process or a restart of the daemon. It needs no lease.

    Every method raises :class:`InvalidArgument` for invalid arguments, or a request of more than 64
    KiB; :class:`DaemonUnreachable` if no answer arrived in ``timeout_s``; :class:`NotAuthorised` if
    the keys are refused; and :class:`GroupRefused` if the daemon refuses the request for another
    reason.
    """

    def __init__(
        self,
        *,
        directory: str | None = None,
        address: str | None = None,
        keys: CurveKeys | None = None,
        server_key: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        """
        :param directory: directory of a daemon on this host; the default is the directory that a
            client uses.
        :param address: ``tcp://host:port``, the address of a daemon's ``control_tcp``; not allowed
            together with ``directory``.
        :param keys: CURVE keys of this client; required with ``address``, not allowed without
            ``address``.
        :param server_key: the daemon's public key in Z85; required with ``address``.
        :param timeout_s: longest duration of a call, and longest wait for the next piece of a
            fetch, in seconds.
        :raises InvalidArgument: the arguments contradict each other.
        """
        if not timeout_s > 0:
            raise InvalidArgument(f"timeout_s is {timeout_s}, expected more than 0")
        if address is None:
            if keys is not None or server_key is not None:
                raise InvalidArgument(
                    "keys and server_key are only for an address, not for a directory"
                )
            endpoint = Endpoint.local(daemon_directory(directory))
        else:
            if directory is not None:
                raise InvalidArgument("give a directory or an address, not both")
            endpoint = Endpoint.remote(address, keys, server_key)
        self._port = GroupPort(endpoint, timeout_s)

    def open(
        self,
        *,
        name: str,
        channel: str,
        stream_id: int,
        sessions: Sequence[int] = (),
        starting: Literal["latest", "earliest"] = "latest",
        expiry_ns: int,
        allow_unreliable: bool = False,
        owner: str = "",
        instead_of: str = "",
    ) -> GroupState:
        """Open a group. If the group is open already, restart its expiry time and keep its
        acknowledged positions.

        :param name: the group's name, at most 80 characters; ``pressure()`` shows it.
        :param sessions: ids of the sessions that the group reads; empty: all sessions.
        :param starting: start in existing streams: ``latest`` at the end, ``earliest`` at the
            oldest position that is certainly in the log.
        :param expiry_ns: time without requests after which the daemon ends the group.
        :param allow_unreliable: whether to accept a stream whose flow control does not wait for
            slow receivers, with a warning in the state.
        :param owner: name of the group's reader, at most 200 characters. The reader repeats it at
            least every four seconds, in any request. Empty: the caller does not read the group.
        :param instead_of: an earlier owner that has certainly ended; the daemon lets ``owner``
            replace it at once.
        :raises GroupOwned: another owner sent a request within the last 8 s.
        :raises UnreliableStream: a stream's flow control does not wait for the group.
        """
        request = _made(
            control.OpenGroup, name=name, channel=channel, stream_id=stream_id,
            sessions=list(sessions), starting=starting, expiry_ns=expiry_ns,
            allow_unreliable=allow_unreliable, owner=owner, instead_of=instead_of,
        )
        return self._state(request)

    def state(
        self, *, name: str, channel: str, stream_id: int, owner: str = "", leave: bool = False
    ) -> GroupState:
        """Return the group's state, and keep the group alive.

        :param owner: as in :meth:`open`.
        :param leave: True if the owner stops reading the group, so that another owner may begin at
            once.
        :raises UnknownGroup: the group was never opened, was closed, or has expired.
        :raises GroupOwned: another owner reads the group.
        """
        return self._state(_made(
            control.GetGroup, name=name, channel=channel, stream_id=stream_id, leave=leave,
            owner=owner,
        ))

    def acknowledge(
        self, *, name: str, channel: str, stream_id: int,
        positions: Mapping[tuple[int, int], int], owner: str = "",
    ) -> GroupState:
        """Acknowledge all data of the logs below the given positions, and keep the group alive.

        :param positions: by (session id, initial term id). The maximum of all acknowledgements
            counts. Logs that the group does not hold on this daemon are ignored.
        :raises UnknownGroup: the group was never opened, was closed, or has expired.
        """
        request = _made(
            control.AcknowledgeGroup, name=name, channel=channel, stream_id=stream_id,
            sessions=[key[0] for key in positions], initial_term_ids=[key[1] for key in positions],
            positions=list(positions.values()), owner=owner,
        )
        return self._state(request)

    def close_group(self, *, name: str, channel: str, stream_id: int) -> None:
        """Close the group and release its data, so that senders no longer wait for the group.

        :raises UnknownGroup: no group has this name.
        """
        request = _made(control.CloseGroup, name=name, channel=channel, stream_id=stream_id)
        self._port.request(request, control.Done)

    def groups(self) -> list[GroupState]:
        """Return all groups of the daemon. The call does not restart their expiry times."""
        answer = self._port.request(control.ListGroups(), control.GroupList)
        return [_group(plain) for plain in answer.groups.values()]

    def stream_credits(
        self, stream_id: int, *, channel: str = "", group: str = "",
        action: CreditAction = "report",
    ) -> control.CreditReport:
        """Withhold or resume the credits of all subscriptions of a stream, or only report the
        credits.

        :param channel: select only the subscriptions with this channel; empty: all subscriptions of
            the stream.
        :param group: select only the consumer group with this name; empty: all subscriptions.
        :returns: the state of each reader. After ``withhold``, repeat ``report`` until it is
            complete.
        :raises GroupRefused: no subscription of the stream grants credits.
        """
        return self._port.request(
            _made(
                control.WithholdStream, stream_id=stream_id, channel=channel, group=group,
                action=action,
            ),
            control.CreditReport,
        )

    def fetch(
        self, *, log_id: int, session_id: int, initial_term_id: int, start: int, end: int
    ) -> Generator[bytes, None, None]:
        """Yield the raw frames (with their headers) of the log positions [start, end), in this
        order. Each piece contains whole frames and has at most 1 MiB. The daemon sends a few pieces
        before the caller requests them. If the caller closes the iterator early, the daemon stops
        sending pieces.

        :raises RangeNotRetained: before the first piece or between two: the daemon does not retain
            the range (any more); ``lowest_readable`` is the lowest position that it retains.
        """
        request = _made(
            control.Fetch, log_id=log_id, session_id=session_id, initial_term_id=initial_term_id,
            start=start, end=end, credit=_FETCH_CREDIT,
        )
        return self._port.fetch(request)

    def cut(
        self, *, log_id: int, session_id: int, initial_term_id: int, start: int, max_bytes: int,
        max_messages: int = 0, pieces: int = 1,
    ) -> LogCuts:
        """Choose the end of a batch that begins at ``start``. Return the end of the batch, and the
        positions between messages at which the batch can be split into parts.

        :param start: a position between messages.
        :param max_bytes: largest size of the batch in log bytes; the batch has at least one
            message.
        :param max_messages: largest number of messages in the batch; 0: no limit.
        :param pieces: number of parts into which the positions split the batch, 1 to 1024; the
            parts have about the same length.
        :raises RangeNotRetained: the daemon does not retain the data at ``start``.
        """
        request = _made(
            control.CutLog, log_id=log_id, session_id=session_id, initial_term_id=initial_term_id,
            start=start, max_bytes=max_bytes, max_messages=max_messages, pieces=pieces,
        )
        answer = self._port.request(request, control.LogCuts)
        return LogCuts(positions=list(answer.positions), messages=answer.messages)

    def times(
        self, *, log_id: int, session_id: int, initial_term_id: int, start: int, end: int,
        most: int = control.MAX_TIMES,
    ) -> LogTimes:
        """Return the times at which the log reached the positions of the range [start, end).

        :param most: most entries to return, 2 to 2048; entries that are neighbours in time are
            joined if there are more.
        :raises RangeNotRetained: no consumer group of the daemon keeps the log any more.
        """
        request = _made(
            control.ReadTimes, log_id=log_id, session_id=session_id,
            initial_term_id=initial_term_id, start=start, end=end, most=most,
        )
        answer = self._port.request(request, control.LogTimes)
        return LogTimes(positions=list(answer.positions), times_ns=list(answer.times_ns))

    def find(
        self, *, log_id: int, session_id: int, initial_term_id: int, start: int,
        reserved_value: int, max_bytes: int = 2**62,
    ) -> LogMarks:
        """Find the messages at or after ``start`` that have a given reserved value. One call
        searches only a part of the log; ``position`` of the result is the end of this part. To
        search the rest, call the method again with ``start`` set to ``position`` of the last
        result.

        :param start: a position between messages.
        :param max_bytes: length of the searched range; messages that begin after it are not
            searched.
        :raises RangeNotRetained: the daemon does not retain the data at ``start``.
        """
        request = _made(
            control.FindMarks, log_id=log_id, session_id=session_id, max_bytes=max_bytes,
            initial_term_id=initial_term_id, start=start, reserved_value=reserved_value,
        )
        answer = self._port.request(request, control.LogMarks)
        marks, at = [], 0
        for begin, end, size in zip(answer.begins, answer.ends, answer.sizes, strict=True):
            marks.append(LogMark(begin=begin, end=end, payload=answer.data[at : at + size]))
            at += size
        return LogMarks(marks=marks, position=answer.position)

    def close(self) -> None:
        """Close the connection; the groups stay open. Idempotent."""
        self._port.close()

    def __enter__(self) -> GroupControl:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _state(self, request: Any) -> GroupState:
        return _group(self._port.request(request, control.GroupReply).group)


def _made(kind: type[Any], **fields: Any) -> Any:
    """Return the message, or raise for invalid arguments."""
    try:
        return kind(**fields)
    except (ValueError, TypeError) as error:
        text = error.args[0] if error.args else type(error).__name__
        raise InvalidArgument(f"{kind.__name__}: {text}") from None


def _group(plain: dict[str, Any]) -> GroupState:
    fields = dict(plain)
    logs = [
        LogRange(**{**log, "time_index": [(entry[0], entry[1]) for entry in log["time_index"]]})
        for log in fields.pop("logs")
    ]
    return GroupState(logs=logs, **fields)

