# SPDX-License-Identifier: Apache-2.0
"""Consumer groups: named subscriptions that the daemon keeps without a client.

A group's progress is what it acknowledged, and nothing else moves it: reading is done elsewhere (in
the mapped log on the daemon's host, or with :meth:`GroupControl.fetch` from anywhere) and consumes
nothing. Data without an acknowledgement stays in the log. When it fills a window, the sender is
held. A group that is not heard of for its expiry time ends, and lets the sender go.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

import attrs

from penstock.client._directory import daemon_directory
from penstock.client._group_port import Endpoint, GroupPort
from penstock.config.protocol import control
from penstock.config.protocol.keys import CurveKeys
from penstock.core.errors import InvalidArgument

_FETCH_CREDIT = 4


@attrs.frozen(kw_only=True)
class LogRange:
    """One session's log held by one group on one daemon."""

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
    """Places between messages, ascending."""

    positions: list[int]
    """The last is the end of a batch, those before it split it.  None: no message is complete."""
    messages: int
    """In the batch."""


@attrs.frozen(kw_only=True)
class LogTimes:
    """When a log was where, ascending."""

    positions: list[int]
    times_ns: list[int]
    """Epoch ns: the log was at the position at that time at the latest."""


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
    """A connection to the groups of one daemon: on this host by directory, or anywhere over TCP
    with CURVE keys.  Synchronous; may be used from several threads; connects when first used, again
    after a fork or a daemon's restart, and needs no lease.

    Every method raises :class:`InvalidArgument` for arguments that make no request, or one of more
    than 64 KiB; :class:`DaemonUnreachable` when no answer came in ``timeout_s``;
    :class:`NotAuthorised` when the keys are refused; and :class:`GroupRefused` when the daemon
    refuses for any other reason.
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
        :param directory: of a daemon on this host; default ``$PENSTOCK_DIR`` as for a client.
        :param address: ``tcp://host:port`` of a daemon's ``control_tcp``; not with ``directory``.
        :param keys: this client's; with ``address`` only, and then required.
        :param server_key: the daemon's public key in Z85; with ``address``.
        :param timeout_s: of each call, and of each silence within a fetch.
        :raises InvalidArgument: the arguments contradict each other.
        """
        if not timeout_s > 0:
            raise InvalidArgument(f"timeout_s is {timeout_s}, expected more than 0")
        if address is None:
            if keys is not None or server_key is not None:
                raise InvalidArgument("keys and server_key go with address, not with a directory")
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
        """Open a group, or find it open: its expiry restarts, its positions stay.

        :param name: the group's, at most 80 characters; shown where it holds a sender.
        :param sessions: only these; none: all.
        :param starting: at streams that are under way: ``latest`` behind all there is,
            ``earliest`` at the oldest that is surely still in the log.
        :param expiry_ns: how long it lives without being heard of.
        :param allow_unreliable: whether to take a stream whose flow control does not wait for slow
            receivers, with a warning in the state.
        :param owner: who reads the group from now on, at most 200 characters; it says so at least
            every four seconds, in any request.  Empty: whoever asks does not read.
        :param instead_of: an owner that is known to be dead, to be replaced at once.
        :raises GroupOwned: another owner was heard of within the last 8 s.
        :raises UnreliableStream: it does not wait, and that is not allowed.
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

        :param owner: as :meth:`open` has it.
        :param leave: the owner reads the group no longer; another may begin at once.
        :raises UnknownGroup: it was never opened, was closed, or has expired.
        :raises GroupOwned: another owner reads it.
        """
        return self._state(_made(
            control.GetGroup, name=name, channel=channel, stream_id=stream_id, leave=leave,
            owner=owner,
        ))

    def acknowledge(
        self, *, name: str, channel: str, stream_id: int,
        positions: Mapping[tuple[int, int], int], owner: str = "",
    ) -> GroupState:
        """Everything below the positions is done with; keeps the group alive.

        :param positions: by (session id, initial term id).  The maximum of all acknowledgements
            holds; what the group does not hold on this daemon is passed over.
        :raises UnknownGroup: it was never opened, was closed, or has expired.
        """
        request = _made(
            control.AcknowledgeGroup, name=name, channel=channel, stream_id=stream_id,
            sessions=[key[0] for key in positions], initial_term_ids=[key[1] for key in positions],
            positions=list(positions.values()), owner=owner,
        )
        return self._state(request)

    def close_group(self, *, name: str, channel: str, stream_id: int) -> None:
        """Drops the group with all that it holds; its sender goes on.

        :raises UnknownGroup: there is none.
        """
        request = _made(control.CloseGroup, name=name, channel=channel, stream_id=stream_id)
        self._port.request(request, control.Done)

    def groups(self) -> list[GroupState]:
        """All groups of the daemon; does not keep them alive."""
        answer = self._port.request(control.ListGroups(), control.GroupList)
        return [_group(plain) for plain in answer.groups.values()]

    def fetch(
        self, *, log_id: int, session_id: int, initial_term_id: int, start: int, end: int
    ) -> Generator[bytes, None, None]:
        """Yield the raw frames of [start, end), headers included, in the order of their positions.
        Each piece has whole frames and at most 1 MiB; a few pieces are in flight at any time.
        Closed early, it ends on the daemon too.

        :raises RangeNotRetained: before the first piece or between two: the daemon does not hold
            it, or not any more; ``lowest_readable`` says from where on it does.
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
        """Where a batch that begins at ``start`` may end, and where to split it.

        :param start: a place between messages.
        :param max_bytes: the most bytes of log; one message is always admitted.
        :param max_messages: the most messages; 0: any number.
        :param pieces: into how many parts of about the same length to split it, 1 to 1024.
        :raises RangeNotRetained: the daemon does not hold ``start``, or not any more.
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
        """When the log reached its positions in [start, end).

        :param most: entries of the answer, 2 to 2048; of too many, neighbours in time are joined.
        :raises RangeNotRetained: no group of the daemon keeps the log any more.
        """
        request = _made(
            control.ReadTimes, log_id=log_id, session_id=session_id,
            initial_term_id=initial_term_id, start=start, end=end, most=most,
        )
        answer = self._port.request(request, control.LogTimes)
        return LogTimes(positions=list(answer.positions), times_ns=list(answer.times_ns))

    def close(self) -> None:
        """Ends the connection, not the groups.  Idempotent."""
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
    """The message, or what is wrong with the arguments."""
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

