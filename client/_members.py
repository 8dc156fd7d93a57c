# SPDX-License-Identifier: Apache-2.0
"""Record which member of a consumer group reads which range of stream positions (decision 211).

The members run on the daemon's host and share one file. A member locks the file to change it; the
kernel releases the lock if the member dies. If a member dies, its claimed ranges become available
to other members.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from penstock.client._groups import LogRange

#: Session id and initial term id.
Session: TypeAlias = tuple[int, int]

FOLDER: Final = "members"
_START_FIELD: Final = 21        # of /proc/PID/stat, from 0
_FORMAT: Final = 1


@attrs.frozen
class Claim:
    """A range of a stream that is assigned to one member of a consumer group: the positions from
    ``start`` to ``end``, in bytes."""

    start: int
    end: int
    member: str
    number: int
    """Tells claims of one member apart, in time too."""


@attrs.frozen
class Joined:
    """A process that has joined the group."""

    member: str
    """From :func:`member_name`."""
    client: str
    """Name of its client, or an empty text."""

    @property
    def pid(self) -> int:
        """Id of the member's process, in the PID namespace of that process."""
        return int(self.member.split("/")[0])


@attrs.define
class LogShares:
    """The ranges of one log that no member of the group may claim, because they are claimed or
    committed already. ``claims`` has the ranges that members are processing; ``done`` has committed
    ranges that no member has reported to the daemon yet, because an earlier range is not committed.
    Both are ascending."""

    claims: list[Claim] = attrs.Factory(list)
    done: list[tuple[int, int]] = attrs.Factory(list)

    def taken(self) -> list[tuple[int, int]]:
        """Return the ranges that members have claimed or committed, in ascending order."""
        return sorted([(claim.start, claim.end) for claim in self.claims] + self.done)

    def free(self, committed: int, end: int) -> tuple[int, int] | None:
        """Return the first range in [committed, end) that no member has claimed or committed."""
        start = committed
        for low, high in self.taken():
            if low > start:
                break
            start = max(start, high)
        end = min([end, *(low for low, _high in self.taken() if low > start)])
        return (start, end) if start < end else None

    def acknowledged(self, committed: int) -> int:
        """Return the position up to which members have committed all data. Remove the committed
        ranges below this position from ``done``."""
        position = committed
        for low, high in sorted(self.done):
            if low <= position:
                position = max(position, high)
        self.done = [(low, high) for low, high in self.done if high > position]
        return position


class Shares:
    """The content of one group's file of claims. A claim assigns a range of stream positions to one
    member."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.logs: dict[Session, LogShares] = {}
        self.members: list[Joined] = []
        self.next = 1
        with contextlib.suppress(FileNotFoundError):
            self._read(json.loads(path.read_bytes()))

    def _read(self, plain: Any) -> None:
        if plain["format"] != _FORMAT:
            return
        self.next = int(plain["next"])
        self.members = [Joined(*member) for member in plain.get("members", [])]
        for log in plain["logs"]:
            self.logs[int(log["session"]), int(log["epoch"])] = LogShares(
                [Claim(*claim) for claim in log["claims"]],
                [(low, high) for low, high in log["done"]],
            )

    def write(self) -> None:
        """Write the claims to the group's file. If the process dies during the call, the file keeps
        its old content."""
        plain = {
            "format": _FORMAT,
            "next": self.next,
            "members": [attrs.astuple(member) for member in self.members],
            "logs": [
                {
                    "session": session, "epoch": epoch, "done": log.done,
                    "claims": [attrs.astuple(claim) for claim in log.claims],
                }
                for (session, epoch), log in self.logs.items() if log.claims or log.done
            ],
        }
        new = self._path.with_suffix(".new")
        new.write_bytes(json.dumps(plain).encode())
        os.replace(new, self._path)

    def log(self, log: LogRange) -> LogShares:
        """Return the claimed and committed ranges of a log."""
        return self.logs.setdefault((log.session_id, log.initial_term_id), LogShares())

    def join(self, member: str, client: str) -> None:
        """Add a member. ``client`` is the name of the client that the member uses."""
        self.release_dead()
        self.members.append(Joined(member, client))

    def leave(self, member: str) -> None:
        """Remove a member and its claims, so that other members can read these ranges."""
        self.release(member)
        self.members = [each for each in self.members if each.member != member]

    def release_dead(self) -> None:
        """Remove dead members and their claims, so that other members can read these ranges."""
        self.members = [each for each in self.members if is_alive(each.member)]
        for log in self.logs.values():
            log.claims = [claim for claim in log.claims if is_alive(claim.member)]

    def forget(self, known: set[Session]) -> None:
        """Remove the records of logs that the daemon no longer keeps, because all their data is
        acknowledged."""
        self.logs = {session: log for session, log in self.logs.items() if session in known}

    def release(self, member: str) -> None:
        """Free what a member holds."""
        for log in self.logs.values():
            log.claims = [claim for claim in log.claims if claim.member != member]

    def put_back(self, session: Session, claim: Claim) -> None:
        """Free one claimed range, which no task has received."""
        log = self.logs.get(session)
        if log is not None:
            log.claims = [each for each in log.claims if each != claim]

    def take(self, session: Session, start: int, end: int, member: str) -> Claim:
        """Record that a member claims a free range of a log."""
        claim = Claim(start, end, member, self.next)
        self.next += 1
        log = self.logs[session]
        log.claims = sorted([*log.claims, claim], key=lambda each: each.start)
        return claim

    def commit(self, session: Session, claim: Claim) -> bool:
        """Mark a member's claimed range as committed. Return False if the claim no longer exists,
        because another member removed it."""
        log = self.logs.get(session)
        if log is None or claim not in log.claims:
            return False
        log.claims.remove(claim)
        log.done.append((claim.start, claim.end))
        return True


@contextlib.contextmanager
def shares(directory: Path, name: str, channel: str, stream_id: int) -> Iterator[Shares]:
    """Lock a group's file of claims and read the claims. The caller changes the claims, and writes
    them to the file with ``write``.

    :raises OSError: this user may not access the daemon's directory.
    """
    path = _file(directory, name, channel, stream_id)
    path.parent.mkdir(exist_ok=True)
    with path.with_suffix(".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Shares(path)


def look(directory: Path, name: str, channel: str, stream_id: int) -> Shares:
    """Read a group's file of claims without its lock, for tools that only show it. If no member
    has ever joined, the result is empty.

    :raises OSError: this user may not access the daemon's directory.
    """
    return Shares(_file(directory, name, channel, stream_id))


def _file(directory: Path, name: str, channel: str, stream_id: int) -> Path:
    key = hashlib.blake2b(f"{name}\0{channel}\0{stream_id}".encode(), digest_size=12).hexdigest()
    return directory / FOLDER / f"{key}.json"


# ---- members -------------------------------------------------------------------------------------


def member_name(number: int) -> str:
    """Return a name that identifies this process and its member ``number``."""
    return f"{os.getpid()}/{process_started(os.getpid())}/{process_place()}/{number}"


def is_alive(member: str) -> bool:
    """Return False only if the process of a member has certainly ended. If the member is on another
    host or in another PID namespace, this process cannot check the member's process, so the result
    is True."""
    pid, started, place, _number = (*member.split("/"), "", "", "", "")[:4]
    if place != process_place() or not pid.isdigit():
        return place != process_place()
    return process_started(int(pid)) == started


def process_started(pid: int) -> str:
    """Return the start time of a process of this host, in ticks; 0: the process has ended."""
    with contextlib.suppress(OSError, IndexError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        fields = text.rpartition(")")[2].split()
        return "0" if fields[0] in "ZX" else fields[_START_FIELD - 2]
    return "0"


@functools.cache
def process_place() -> str:
    """Return an id of this host, its current boot, and the PID namespace of this process."""
    boot = namespace = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
    with contextlib.suppress(OSError):
        namespace = re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink()))
    return f"{boot}-{namespace}"
