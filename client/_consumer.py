# SPDX-License-Identifier: Apache-2.0
"""Members of consumer groups: a member reads batches of messages, processes them, and commits
them."""

from __future__ import annotations

import itertools
import os
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Literal, Self

from penstock.client._group_credits import BatchHandler, GroupWithholding
from penstock.client._groups import CreditAction, GroupControl, GroupState, LogRange
from penstock.client._members import Claim, Session, Shares, member_name, shares
from penstock.client._message import Message
from penstock.core import gather
from penstock.core.errors import ClosedError, InvalidArgument, TimeoutExpired
from penstock.errors import AssignmentLost, RangeNotRetained, UnknownGroup

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.client._client import Client
    from penstock.config.protocol.control import CreditReport

DEFAULT_BATCH: Final = 4096
DEFAULT_BYTES: Final = 4 << 20
DEFAULT_EXPIRY_S: Final = 600.0
_OWNER: Final = "members on the host of the daemon"
_NUMBERS: Final = itertools.count(1)
#: Waits between looks for new data, in seconds: they double up to the second.
SHORTEST_S: Final = 0.001
LONGEST_S: Final = 0.05
_ALIGN: Final = gather.ALIGNMENT


class GroupBatch:
    """A batch of messages of one session, in order. The batch is assigned to this member of the
    group until the member calls :meth:`commit`. While a batch is assigned to a member, no other
    member gets its messages.

    The batch contains copies of the messages, which stay valid after the publisher reuses the log.
    """

    def __init__(
        self, group: ConsumerGroup, log: LogRange, claim: Claim, rows: _Rows
    ) -> None:
        self._group = group
        self._log = log
        self._claim = claim
        self._rows = rows
        self._committed = False

    def __len__(self) -> int:
        return self._rows.count

    def __iter__(self) -> Iterator[Message]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> Message:
        index = range(len(self))[index]
        rows, log = self._rows, self._log
        data = rows.payloads[index]
        start = rows.positions[index - 1] if index else self._claim.start
        row = (
            0, len(data), -1, start, rows.positions[index], rows.reserved[index], log.session_id,
            log.stream_id, 0, 0, 0, 0xC0, 0,
        )
        return Message._of(row, data)

    @property
    def payloads(self) -> list[memoryview]:
        """A memoryview of each message; the views stay valid as long as the batch exists."""
        return self._rows.payloads

    @property
    def session_id(self) -> int:
        """Session of the publisher."""
        return self._log.session_id

    @property
    def start_position(self) -> int:
        """Position before the first message, in bytes."""
        return self._claim.start

    @property
    def position(self) -> int:
        """Position after the last message, in bytes."""
        return self._claim.end

    @property
    def is_committed(self) -> bool:
        """Whether :meth:`commit` has succeeded."""
        return self._committed

    def to_arrow(self) -> pa.RecordBatch:
        """Return the messages as an Arrow batch with the columns payload, position, session_id and
        reserved_value."""
        import pyarrow as pa

        count = len(self)
        return pa.RecordBatch.from_pydict({
            "payload": pa.array(self._rows.payloads, pa.large_binary()),
            "position": pa.array(self._rows.positions, pa.int64()),
            "session_id": pa.array([self.session_id] * count, pa.int32()),
            "reserved_value": pa.array(self._rows.reserved, pa.int64()),
        })

    def commit(self) -> None:
        """Acknowledge the messages of this batch, so that no member receives them again.
        Idempotent.

        :raises AssignmentLost: this member does not hold them any more; another one may have
            received them, or will.
        """
        if not self._committed:
            self._group._commit(self._log, self._claim)
            self._committed = True

    def _repr_html_(self) -> str:
        from penstock.client._html import group_batch_html

        return group_batch_html(self)

    def __repr__(self) -> str:
        return (
            f"<GroupBatch of {len(self)} messages, session {self.session_id}, positions "
            f"{self._claim.start} to {self._claim.end}{' committed' * self._committed}>"
        )


class _Rows:
    """Messages that were copied out of a log."""

    def __init__(self, values: array[int], offsets: array[int], positions: array[int],
                 reserved: array[int], count: int) -> None:
        self.count = count
        whole = memoryview(values).toreadonly()
        self.payloads = [whole[low:high] for low, high in pairwise(offsets[: count + 1])]
        self.positions = positions[:count]
        self.reserved = reserved[:count]


def _session(log: LogRange) -> Session:
    return log.session_id, log.initial_term_id


def _committed(logs: list[LogRange], log: LogRange) -> int:
    """Return the committed position of the log's session. A session whose sender was silent and
    returned has several logs, one behind the other; the group is in the first of them."""
    return min(each.committed for each in logs if _session(each) == _session(log))


def _older(logs: list[LogRange], log: LogRange) -> int:
    """Return the number of logs that come before a log of the same session."""
    return sum(
        _session(each) == _session(log) and each.committed < log.committed for each in logs
    )


def _next(logs: list[LogRange], log: LogRange) -> LogRange | None:
    """Return the log that continues a log."""
    return next((
        each for each in logs
        if _session(each) == _session(log) and each.retained_from == log.end_position
        and each.end_position > log.end_position
    ), None)


class ConsumerGroup:
    """A member of a consumer group, which this process has joined
    with :meth:`penstock.Client.consumer_group`.

    The members of a group share its messages: each batch goes to one member only. If this member
    closes or dies before it commits a batch, the batch goes to another member. Only one thread at a
    time may use the member.
    """

    def __init__(
        self, client: Client, name: str, channel: str, stream_id: int, *,
        starting: Literal["latest", "earliest"], expiry_s: float,
    ) -> None:
        if not expiry_s > 0:
            raise InvalidArgument(f"expiry_s must be positive, not {expiry_s}")
        self._client = client
        self._name, self._channel, self._stream_id = name, channel, stream_id
        self._member = member_name(next(_NUMBERS))
        self._pid = os.getpid()
        self._control = GroupControl(directory=str(client.directory))
        self._closing = threading.Event()
        self._logs: dict[str, gather.MappedLog] = {}
        self._turn = 0
        try:
            self._control.open(
                name=name, channel=channel, stream_id=stream_id, starting=starting,
                expiry_ns=int(expiry_s * 1e9), owner=_OWNER,
            )
            with self._shares() as held:
                held.join(self._member, client.name)
                held.write()
        except BaseException:
            self._control.close()
            raise

    # ---- facts -----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the group."""
        return self._name

    @property
    def channel(self) -> str:
        return self._channel

    @property
    def stream_id(self) -> int:
        return self._stream_id

    @property
    def is_closed(self) -> bool:
        return self._closing.is_set()

    def state(self) -> GroupState:
        """Request the group's state from the daemon: for each log, the committed position and the
        end of the data."""
        self._check()
        return self._control.state(
            name=self._name, channel=self._channel, stream_id=self._stream_id, owner=_OWNER
        )

    # ---- receiving -------------------------------------------------------------------------------

    def messages(
        self, limit: int = DEFAULT_BATCH, timeout_s: float | None = None, *,
        max_bytes: int = DEFAULT_BYTES,
    ) -> Iterator[GroupBatch]:
        """Iterate over batches of messages; wait for each batch. Before the iteration begins, this
        member releases all batches that it has received but not committed. Any member of the group
        can receive the released batches again.

        :param limit: largest number of messages in one batch.
        :param timeout_s: longest wait for one batch, in seconds; None: no limit.
        :param max_bytes: largest number of log bytes in one batch; a batch always has at least one
            message.
        :raises TimeoutExpired: no batch was available within ``timeout_s``.
        :raises AssignmentLost: the group has expired or was ended.
        """
        self._check_sizes(limit, max_bytes)
        self._release()
        return self._batches(limit, timeout_s, max_bytes)

    def _batches(
        self, limit: int, timeout_s: float | None, max_bytes: int
    ) -> Iterator[GroupBatch]:
        while not self.is_closed:
            batch = self._wait(lambda: self._claim(limit, max_bytes), timeout_s)
            if batch is None:
                return
            yield batch

    def recv_batch(
        self, limit: int = DEFAULT_BATCH, timeout_s: float | None = None, *,
        max_bytes: int = DEFAULT_BYTES,
    ) -> GroupBatch:
        """Wait for one batch of messages; the arguments and errors are those of :meth:`messages`.
        Earlier batches that are not committed yet stay assigned to this member."""
        self._check_sizes(limit, max_bytes)
        batch = self._wait(lambda: self._claim(limit, max_bytes), timeout_s)
        if batch is None:
            raise ClosedError("the member of the group is closed")
        return batch

    def _wait(
        self, attempt: Callable[[], GroupBatch | None], timeout_s: float | None
    ) -> GroupBatch | None:
        """A batch, or None after :meth:`close`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        pause = SHORTEST_S
        while not self._closing.is_set():
            try:
                batch = attempt()
            except ClosedError:
                if not self._closing.is_set():
                    raise
                return None         # another thread closed the member
            if batch is not None:
                return batch
            if deadline is not None and time.monotonic() >= deadline:
                raise self._nothing(timeout_s or 0.0)
            self._closing.wait(pause)
            pause = min(2 * pause, LONGEST_S)
        return None

    @staticmethod
    def _check_sizes(limit: int, max_bytes: int) -> None:
        if limit < 1 or max_bytes < 1:
            raise InvalidArgument(f"limit={limit} and max_bytes={max_bytes} must be at least 1")

    def _nothing(self, timeout_s: float) -> TimeoutExpired:
        return TimeoutExpired(
            f"group {self._name!r} on {self._channel} stream {self._stream_id} has no messages "
            f"that another member does not hold, within {timeout_s:g} s"
        )

    def _claim(self, limit: int, max_bytes: int) -> GroupBatch | None:
        """The next free range, taken and read; None: there is none."""
        with self._shares() as held:
            held.release_dead()
            state = self._state()
            held.forget({(log.session_id, log.initial_term_id) for log in state.logs})
            first = self._turn % len(state.logs) if state.logs else 0
            logs = [*state.logs[first:], *state.logs[:first]]
            waiting: set[Session] = set()       # for the end of the next message
            for log in sorted(logs, key=lambda log: _older(state.logs, log)):
                if _session(log) in waiting:
                    continue
                claim = self._take(held, state.logs, log, limit, max_bytes, waiting)
                if claim is not None:
                    self._turn += 1
                    held.write()
                    break
            else:
                return None
        return GroupBatch(self, log, claim, self._read(state.logs, log, claim))

    def _take(
        self, held: Shares, logs: list[LogRange], log: LogRange, limit: int, max_bytes: int,
        waiting: set[Session],
    ) -> Claim | None:
        session = _session(log)
        share = held.log(log)
        share.acknowledged(_committed(logs, log))
        free = share.free(log.committed, log.end_position)
        if free is None:
            return None
        start, end = free
        cuts = gather.cut(
            self._log(log), start, end, max_bytes=max_bytes, max_messages=limit
        )
        stop = cuts.positions[-1] if cuts.positions else self._end_across(logs, log, start)
        if stop is None:
            # If data behind the log is lost, its last message never ends.
            if not any(_session(x) == session and x.retained_from > log.end_position for x in logs):
                waiting.add(session)
            return None
        return held.take(session, start, stop, self._member)

    def _end_across(self, logs: list[LogRange], log: LogRange, start: int) -> int | None:
        """Return the end of a message that begins in a log and ends in the next one; None: it is
        not there yet."""
        if _next(logs, log) is None:
            return None
        term_end = (start // log.term_length + 1) * log.term_length
        frames = self._frames(logs, log, start, term_end)
        end = bytearray(8)
        rows = gather.Rows(
            values=bytearray(max(frames.end - start, 1)), offsets=bytearray(8), positions=end
        )
        rows.copy(frames)
        return int.from_bytes(end, "little") if rows.count else None

    def _frames(self, logs: list[LogRange], log: LogRange, start: int, end: int) -> gather.Frames:
        """Return the frames of a range to the end of its term, in a log and the logs behind it."""
        if end <= log.end_position:
            return self._log(log).frames(start, end)
        data, part = b"", log
        while True:
            at = start + len(data)
            data += self._log(part).frames(at, min(end, part.end_position)).data
            following = _next(logs, part)
            if following is None or start + len(data) < part.end_position:
                break
            part = following
        return gather.frames_of(
            data, start=start, session_id=log.session_id, stream_id=log.stream_id,
            initial_term_id=log.initial_term_id, term_length=log.term_length,
        )

    def _log(self, log: LogRange) -> gather.MappedLog:
        mapped = self._logs.get(log.log_path)
        if mapped is None or mapped.facts.correlation_id != log.log_id:
            mapped = self._logs[log.log_path] = gather.MappedLog.open(log.log_path)
        return mapped

    def _read(self, logs: list[LogRange], log: LogRange, claim: Claim) -> _Rows:
        """Copy the messages of a claim, then have the daemon confirm that it kept them."""
        length = claim.end - claim.start
        most = length // _ALIGN + 1
        values, offsets = array("B", bytes(length)), array("i", bytes(4 * (most + 1)))
        positions, reserved = array("q", bytes(8 * most)), array("q", bytes(8 * most))
        rows = gather.Rows(
            values=values, offsets=offsets, positions=positions, reserved_values=reserved
        )
        at = claim.start
        while at < claim.end:
            frames = self._frames(logs, log, at, claim.end)
            rows.copy(frames)
            at = max(rows.position, at)
            if rows.position < frames.end and frames.end % log.term_length == 0:
                at = frames.end         # no message continues in the next term
            elif rows.position <= frames.start:
                break
        for kept in self._state().logs:
            if kept.log_id == log.log_id and kept.retained_from <= claim.start:
                return _Rows(values, offsets, positions, reserved, rows.count)
        raise RangeNotRetained(
            f"group {self._name!r}: positions {claim.start} to {claim.end} of session "
            f"{log.session_id} were released while they were read: another program acknowledges "
            "for this group",
            lowest_readable=0, end_position=0,
        )

    # ---- committing ------------------------------------------------------------------------------

    def _put_back(self, batch: GroupBatch | None) -> None:
        """Free the batch of a call that was cancelled."""
        if batch is not None and not self.is_closed:
            with self._shares() as held:
                held.put_back(_session(batch._log), batch._claim)
                held.write()

    def _commit(self, log: LogRange, claim: Claim) -> None:
        session = _session(log)
        with self._shares() as held:
            if not held.commit(session, claim):
                raise AssignmentLost(
                    f"group {self._name!r}: this member does not hold positions {claim.start} to "
                    f"{claim.end} of session {log.session_id} any more; discard the work, another "
                    "member receives these messages"
                )
            held.write()
            known = [each for each in self._state().logs if _session(each) == session]
            if not known:
                return          # the stream has ended, and all of it is acknowledged
            committed = _committed(known, known[0])
            position = held.log(log).acknowledged(committed)
            if position > committed:
                self._control.acknowledge(
                    name=self._name, channel=self._channel, stream_id=self._stream_id,
                    positions={session: position}, owner=_OWNER,
                )
            held.write()

    def _state(self) -> GroupState:
        try:
            return self.state()
        except UnknownGroup as error:
            raise AssignmentLost(
                f"group {self._name!r} was ended or has expired, and its messages are released: "
                f"{error}"
            ) from None

    # ---- credits ---------------------------------------------------------------------------------

    def withhold(self, timeout_s: float, handler: BatchHandler | None = None) -> None:
        """Stop the publishers of the group's streams, and wait until the members of the group have
        committed every message that was published. The publishers' offers return
        ``Offer.NO_CREDIT`` until a member calls :meth:`resume`.

        Other members continue to receive and commit batches during the call.

        :param handler: called with each batch that this member receives meanwhile; the call commits
            the batch after the handler has returned. Without a handler, this member receives no
            batches, and other members have to commit the messages.
        :raises WithholdTimeout: messages were not committed after ``timeout_s`` seconds; it names
            the members with open batches, and the publishers continue.
        :raises ChannelRefused: a sender does not support credits.
        :raises GroupRefused: the group grants no credits.
        """
        freeze = GroupWithholding(self, handler)
        freeze.request()
        done = False
        try:
            done = self._until(freeze.is_done, timeout_s)
            if not done:
                raise freeze.failure(timeout_s)
        finally:
            if not done and not self.is_closed:
                self.resume()

    def _until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        deadline, pause = time.monotonic() + timeout_s, SHORTEST_S
        while not condition():
            if time.monotonic() >= deadline:
                return False
            self._closing.wait(pause)
            pause = min(2 * pause, LONGEST_S)
        return True

    def resume(self) -> None:
        """Grant credits again, after :meth:`withhold` or :meth:`drain` of any member.
        Idempotent."""
        self._ask_credits("resume")

    def drain(self, timeout_s: float, handler: BatchHandler | None = None) -> None:
        """Stop the publishers, wait until every message is committed, and leave the group. The
        group stays open, and its publishers stay stopped until a member calls :meth:`resume`.

        The parameters and errors are those of :meth:`withhold`. After an error this member stays in
        the group, and the publishers continue.
        """
        self.withhold(timeout_s, handler)
        self.close()

    def _ask_credits(self, action: CreditAction) -> CreditReport:
        self._check()
        return self._control.stream_credits(
            self._stream_id, channel=self._channel, group=self._name, action=action
        )

    # ---- life ------------------------------------------------------------------------------------

    def _shares(self) -> AbstractContextManager[Shares]:
        self._check()
        return shares(self._client.directory, self._name, self._channel, self._stream_id)

    def _release(self) -> None:
        with self._shares() as held:
            held.release(self._member)
            held.write()

    def _check(self) -> None:
        if os.getpid() != self._pid:
            self._client._check_fork()
        if self.is_closed:
            raise ClosedError("the member of the group is closed")

    def close(self) -> None:
        """Leave the group; other members then receive the batches that this member has not
        committed. Idempotent."""
        if self.is_closed:
            return
        if os.getpid() == self._pid and (self._client.directory).is_dir():
            with self._shares() as held:
                held.leave(self._member)
                held.write()
        self._closing.set()
        self._logs.clear()
        self._control.close()

    def end(self) -> None:
        """End the group for all its members. When a group ends, the daemon releases the group's
        unacknowledged messages."""
        self._check()
        self._control.close_group(
            name=self._name, channel=self._channel, stream_id=self._stream_id
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        from penstock.client._html import group_html

        return group_html(self)

    def __repr__(self) -> str:
        return f"<ConsumerGroup {self._name!r} {self._channel} stream={self._stream_id}>"
