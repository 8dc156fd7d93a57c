# SPDX-License-Identifier: Apache-2.0
"""Serve fetches. A fetch sends a range of a consumer group's log, in whole frames, to a reader that
cannot map the log.

When a reader fetches a range of a log, the daemon sends the range in pieces. The reader states how
many pieces the daemon may send (the fetch's credit). Two limits apply to the bytes in flight: one
for each fetch, and one for all fetches together. If a reader sends nothing for some time, the
service sends a message to test whether the reader still lives. If the reader is dead, the service
soon ends the fetch, so that its bytes in flight no longer count against the limits. Before a fetch
begins, the conductor states the path of the log and its readable range. After the service has
copied a piece of a log, it checks that a group still needs the copied data. If no group needs the
copied data any more, the service discards the copy, because the log may have been zeroed during the
copy.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, Protocol

import attrs
import zmq

from penstock.config.protocol.control import (
    FETCH_PIECE_BYTES,
    MARK_BYTES,
    MAX_MARKS,
    MAX_MARKS_BYTES,
    CutLog,
    Done,
    Failure,
    Fetch,
    FetchPiece,
    FindMarks,
    LogCuts,
    LogMarks,
    Message,
    RangeGone,
)
from penstock.core import gather
from penstock.core.errors import PenstockError
from penstock.core.group_log import GroupLog
from penstock.daemon.conductor.sagas.retention import Locate, Located

_FETCHES: Final = 256
_FETCHES_EACH: Final = 8
_CUT_BYTES: Final = 64 * 1024 * 1024
_OPEN_LOGS: Final = 64
_PATIENCE_NS: Final = 60 * 10**9        # time without credit after which a fetch ends
_SILENT_NS: Final = 10**9               # is it there?
_PROBE_NS: Final = 5 * 10**9            # the next time


@attrs.frozen
class Peer:
    """A connection."""

    router: zmq.Socket[bytes] = attrs.field(hash=False)
    identity: bytes


class Send(Protocol):
    """Sends a message to a reader. Returns False if the reader has disconnected or does not
    read."""

    def __call__(
        self, peer: Peer, message: Message, correlation: int, data: bytes | None
    ) -> bool: ...


@attrs.define(eq=False)
class _Waiting:
    """Work on a log that waits for the conductor's answer."""

    peer: Peer
    correlation: int
    request: Fetch | CutLog | FindMarks


@attrs.define(eq=False)
class _Fetch:
    peer: Peer
    correlation: int
    log_id: int
    reader: GroupLog
    position: int
    end: int
    credit: int
    under_way: int = 0                  # pieces sent and not yet credited
    heard_ns: int = 0
    probed_ns: int = 0


class FetchServer:
    """Serves fetches. One thread uses it."""

    def __init__(
        self, *, send: Send, locate: Callable[[Locate], int],
        floor: Callable[[int], int | None], limit_bytes: int,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._send = send
        self._clock = clock
        self._locate = locate
        self._floor = floor
        self._limit = max(1, limit_bytes // FETCH_PIECE_BYTES)
        self._waiting: dict[int, _Waiting] = {}
        self._fetches: OrderedDict[tuple[Peer, int], _Fetch] = OrderedDict()
        self._readers: OrderedDict[int, GroupLog] = OrderedDict()     # by log id
        self._maps: OrderedDict[int, gather.MappedLog] = OrderedDict()
        self._under_way = 0
        self._next_check_ns = 0

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        for mapped in self._maps.values():
            mapped.close()

    # ---- requests --------------------------------------------------------------------------------

    def fetch(self, peer: Peer, correlation: int, request: Fetch) -> None:
        """Begin a fetch."""
        begun: list[_Fetch | _Waiting] = [*self._fetches.values(), *self._waiting.values()]
        mine = sum(1 for one in begun if one.peer == peer)
        if len(begun) >= _FETCHES or mine >= _FETCHES_EACH:
            self._fail(peer, correlation, "limit", f"{mine} fetches of this connection and "
                       f"{len(begun)} in all are under way: try again later")
        elif request.start > request.end or request.start % 32 or request.end % 32:
            self._fail(peer, correlation, "malformed",
                       f"[{request.start}, {request.end}) is no range of whole frames")
        else:
            self._request(_Waiting(peer, correlation, request))

    def look(self, peer: Peer, correlation: int, request: CutLog | FindMarks) -> None:
        """Serve the requests CutLog and FindMarks. CutLog finds message boundaries at which a range
        of a log can be split. FindMarks finds the messages with a given reserved value."""
        mine = sum(1 for one in self._waiting.values() if one.peer == peer)
        if len(self._waiting) >= _FETCHES or mine >= _FETCHES_EACH:
            self._fail(peer, correlation, "limit", f"{mine} requests of this connection and "
                       f"{len(self._waiting)} in all are under way: try again later")
        elif request.start % 32:
            self._fail(peer, correlation, "malformed",
                       f"{request.start} is not the start of a frame")
        else:
            self._request(_Waiting(peer, correlation, request))

    def credit(self, peer: Peer, correlation: int, pieces: int) -> None:
        """Process a reader's message FetchCredit: the daemon may send ``pieces`` more pieces; 0
        ends the fetch."""
        found = self._fetches.get((peer, correlation))
        if found is None:
            return
        if pieces == 0:
            self._drop(found)
            return
        returned = min(pieces, found.under_way)     # never more credit than pieces sent
        found.under_way -= returned
        self._under_way -= returned
        found.credit += returned
        found.heard_ns = self._clock()

    def _request(self, waiting: _Waiting) -> None:
        request = waiting.request
        number = self._locate(
            Locate(
                log_id=request.log_id, session_id=request.session_id,
                initial_term_id=request.initial_term_id,
            )
        )
        self._waiting[number] = waiting

    def located(self, number: int, answer: Any) -> None:
        """Take the conductor's answer."""
        waiting = self._waiting.pop(number, None)
        if waiting is None:
            return
        if not isinstance(answer, Located):
            self._send(waiting.peer, answer, waiting.correlation, None)
            return
        request = waiting.request
        end = request.end if isinstance(request, Fetch) else request.start
        if request.start < answer.lowest or end > answer.end:
            self._gone(waiting.peer, waiting.correlation, request.log_id, request.start, end,
                       answer.lowest, answer.end)
            return
        try:
            if isinstance(request, Fetch):
                self._begin(waiting, request, answer)
            elif isinstance(request, CutLog):
                self._cut(waiting, request, answer)
            else:
                self._find(waiting, request, answer)
        except (PenstockError, OSError) as error:
            self._fail(waiting.peer, waiting.correlation, "internal", str(error))

    # ---- cuts ------------------------------------------------------------------------------------

    def _cut(self, waiting: _Waiting, request: CutLog, at: Located) -> None:
        cuts = gather.cut(
            self._mapped(request.log_id, at), request.start, at.end,
            max_bytes=min(request.max_bytes, _CUT_BYTES), max_messages=request.max_messages,
            pieces=request.pieces,
        )
        self._reply(waiting, at, LogCuts(
            positions=[int(p) for p in cuts.positions], messages=int(cuts.messages)
        ))

    def _find(self, waiting: _Waiting, request: FindMarks, at: Located) -> None:
        found = gather.find(
            self._mapped(request.log_id, at), request.start, at.end,
            reserved_value=request.reserved_value,
            max_bytes=min(request.max_bytes, _CUT_BYTES), most=MAX_MARKS, prefix=MARK_BYTES,
        )
        taken = found.messages
        size = count = 0
        for message in taken:
            size += len(message.payload)
            if count and size > MAX_MARKS_BYTES:
                break
            count += 1
        position = found.position if count == len(taken) else taken[count - 1].end
        taken = taken[:count]
        self._reply(waiting, at, LogMarks(
            begins=[m.begin for m in taken], ends=[m.end for m in taken],
            sizes=[len(m.payload) for m in taken], data=b"".join(m.payload for m in taken),
            position=position,
        ))

    def _mapped(self, log_id: int, at: Located) -> gather.MappedLog:
        mapped = self._maps.pop(log_id, None) or gather.MappedLog.open(at.path)
        self._keep(self._maps, log_id, mapped)
        return mapped

    def _reply(self, waiting: _Waiting, at: Located, answer: LogCuts | LogMarks) -> None:
        """The answer, if what it was made from was retained all the while."""
        log_id, start = waiting.request.log_id, waiting.request.start
        floor = self._floor(log_id)
        if floor is None or start < floor:
            self._gone(waiting.peer, waiting.correlation, log_id, start, start, floor or 0, at.end)
            return
        self._send(waiting.peer, answer, waiting.correlation, None)

    # ---- pieces ----------------------------------------------------------------------------------

    def _begin(self, waiting: _Waiting, request: Fetch, at: Located) -> None:
        reader = self._readers.pop(request.log_id, None) or GroupLog(at.path)
        self._keep(self._readers, request.log_id, reader)
        fetch = _Fetch(
            waiting.peer, waiting.correlation, request.log_id, reader, request.start, request.end,
            request.credit, heard_ns=self._clock(),
        )
        key = (waiting.peer, waiting.correlation)
        if key in self._fetches:
            self._drop(self._fetches[key])
        self._fetches[key] = fetch
        if request.start == request.end:
            piece = FetchPiece(position=request.start, next_position=request.end, last=True)
            self._send(waiting.peer, piece, waiting.correlation, b"")
            self._drop(fetch)

    def step(self) -> bool:
        """Send one piece for each fetch whose reader permits more pieces. Return True if the
        service can send another piece immediately."""
        now_ns = self._clock()
        if now_ns >= self._next_check_ns:
            self._next_check_ns = now_ns + 10**9
            for fetch in list(self._fetches.values()):
                if fetch.under_way == 0 or now_ns - fetch.heard_ns <= _PATIENCE_NS:
                    continue
                self._fail(
                    fetch.peer, fetch.correlation, "stalled",
                    f"no credit came for {_PATIENCE_NS // 10**9} s, and the fetch was given up at "
                    f"position {fetch.position}: request again from where you are",
                )
                self._drop(fetch)
            for fetch in list(self._fetches.values()):
                self._probe(fetch, now_ns)
            self._sweep(self._readers)
            self._sweep(self._maps)
        moved = False
        for key in list(self._fetches):
            found = self._fetches.get(key)
            if found is None or found.credit == 0 or self._under_way >= self._limit:
                continue
            moved = True
            self._fetches.move_to_end(key)
            try:
                self._piece(found)
            except PenstockError as error:
                self._fail(found.peer, found.correlation, "internal", str(error))
                self._drop(found)
        return moved

    def _piece(self, fetch: _Fetch) -> None:
        start = fetch.position
        to = fetch.reader.cut(start, fetch.end, FETCH_PIECE_BYTES)
        data = fetch.reader.copy(start, to)
        floor = self._floor(fetch.log_id)
        if floor is None or start < floor:
            self._gone(fetch.peer, fetch.correlation, fetch.log_id, start, fetch.end, floor or 0,
                       fetch.end if floor is not None else 0)
            self._drop(fetch)
            return
        last = to == fetch.end
        piece = FetchPiece(position=start, next_position=to, last=last)
        if not self._send(fetch.peer, piece, fetch.correlation, data) or last:
            self._drop(fetch)
            return
        fetch.position = to
        fetch.credit -= 1
        if fetch.under_way == 0:
            fetch.heard_ns = self._clock()      # the reader has a piece to take from now on
        fetch.under_way += 1
        self._under_way += 1

    def _probe(self, fetch: _Fetch, now_ns: int) -> None:
        """Send a message that readers ignore, to find out whether the peer is there."""
        silent = now_ns - fetch.heard_ns > _SILENT_NS and fetch.under_way > 0
        if silent and now_ns - fetch.probed_ns > _PROBE_NS:
            fetch.probed_ns = now_ns
            if not self._send(fetch.peer, Done(), 0, None):
                self._drop(fetch)

    def _drop(self, fetch: _Fetch) -> None:
        self._fetches.pop((fetch.peer, fetch.correlation), None)
        self._under_way -= fetch.under_way
        fetch.under_way = 0

    # ---- the rest --------------------------------------------------------------------------------

    def _keep(self, table: OrderedDict[int, Any], log_id: int, value: Any) -> None:
        """Keep a mapped log as the newest; unmap the oldest that no fetch reads."""
        table[log_id] = value
        in_use = {fetch.log_id for fetch in self._fetches.values()}
        for old in list(table):
            if len(table) <= _OPEN_LOGS:
                break
            if old != log_id and old not in in_use:
                table.pop(old).close()

    def _sweep(self, table: OrderedDict[int, Any]) -> None:
        """Unmap logs that no group holds any more, so that their memory is freed."""
        in_use = {fetch.log_id for fetch in self._fetches.values()}
        for log_id in [x for x in table if x not in in_use and self._floor(x) is None]:
            table.pop(log_id).close()

    def _gone(
        self, peer: Peer, correlation: int, log_id: int, start: int, end: int, lowest: int,
        reach: int,
    ) -> None:
        words = f"it holds [{lowest}, {reach})" if reach > 0 else "no group keeps that log any more"
        why = f"log {log_id} does not hold [{start}, {end}): {words}"
        answer = RangeGone(lowest=lowest, end=reach, message=why)
        self._send(peer, answer, correlation, None)

    def _fail(self, peer: Peer, correlation: int, code: str, why: str) -> None:
        self._send(peer, Failure(code=code, message=why[:1000]), correlation, None)
