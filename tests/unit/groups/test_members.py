# SPDX-License-Identifier: Apache-2.0
"""Which member reads which range: random members that take, commit, leave and die."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.client import _members
from penstock.client._members import Claim, LogShares, Shares, is_alive, member_name

SESSION = (1, 2)
END = 320
STEPS = st.lists(st.tuples(
    st.sampled_from(["take", "commit", "release"]), st.integers(0, 2), st.integers(1, 4),
    st.integers(0, 7),
), max_size=60)


@given(steps=STEPS)
def test_every_range_is_with_one_member_and_none_is_lost(
    steps: list[tuple[str, int, int, int]]
) -> None:
    """Nothing is acknowledged that was not committed; in the end everything can be."""
    held = Shares(Path("/nonexistent/group.json"))
    held.logs[SESSION] = LogShares()
    log, committed, done = held.logs[SESSION], 0, set[int]()

    def covered() -> list[int]:
        return [at for low, high in log.taken() for at in range(low, high, 32)]

    def take(member: str, frames: int) -> Claim | None:
        free = log.free(committed, END)
        if free is None:
            return None
        start, end = free
        return held.take(SESSION, start, min(end, start + 32 * frames), member)

    def commit(claim: Claim) -> int:
        assert held.commit(SESSION, claim)
        assert not held.commit(SESSION, claim)
        done.update(range(claim.start, claim.end, 32))
        position = log.acknowledged(committed)
        assert set(range(0, position, 32)) <= done
        return position

    for kind, member, frames, which in steps:
        if kind == "take":
            take(str(member), frames)
        elif kind == "commit" and log.claims:
            committed = commit(log.claims[which % len(log.claims)])
        elif kind == "release":
            held.release(str(member))
        assert len(covered()) == len(set(covered()))
        assert not done & {
            at for claim in log.claims for at in range(claim.start, claim.end, 32)
        }
    for member in range(3):
        held.release(str(member))
    while (claim := take("last", 3)) is not None:
        committed = commit(claim)
    assert committed == END
    assert done == set(range(0, END, 32))


def test_the_file_holds_what_it_was_given(tmp_path: Path) -> None:
    def again() -> Shares:
        return Shares(tmp_path / "group.json")

    held = again()
    held.logs[SESSION] = LogShares(done=[(64, 96)])
    claim = held.take(SESSION, 0, 64, "someone")
    held.write()
    assert again().logs == {SESSION: LogShares([claim], [(64, 96)])}
    assert again().next == 2
    assert again().commit(SESSION, claim)
    held.forget(set())
    held.write()
    assert again().logs == {}


def test_members_are_as_alive_as_their_process() -> None:
    assert is_alive(member_name(1))
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    started = _members.process_started(pid)
    name = member_name(1).replace(str(os.getpid()), str(pid), 1)
    os.waitpid(pid, 0)
    assert started
    assert not is_alive(name)
    assert is_alive("77/5/elsewhere-1/3")       # another host or namespace: nobody can tell
    assert not is_alive(member_name(1).replace("/", "/9", 1))
