# SPDX-License-Identifier: Apache-2.0
"""Time-outs of tests: what they count."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support import patience
from support.patience import LEAST_SHARE, STRETCH_S, Patience, descendants, scheduled, share


class Clock:
    """The time, and what the threads of a test did meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        self.times: patience.Times = {(1, 1): (0, 0)}
        monkeypatch.setattr(patience.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(patience, "scheduled", lambda _: dict(self.times))

    def run(self, seconds: float, *, ran_s: float, waited_s: float) -> None:
        ran, waited = self.times[1, 1]
        self.now_s += seconds
        self.times[1, 1] = ran + round(ran_s * 1e9), waited + round(waited_s * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_time_without_work_counts(clock: Clock) -> None:
    limit = Patience(10)
    for left in (9, 8, 7):
        clock.run(1, ran_s=0, waited_s=0)
        assert limit.left_s == pytest.approx(left)


def test_time_that_others_had_the_processors_does_not_count(clock: Clock) -> None:
    limit = Patience(10)
    clock.run(1, ran_s=0, waited_s=0)
    assert limit.left_s == pytest.approx(9)
    for left in (8.75, 8.5):
        clock.run(1, ran_s=0.25, waited_s=0.75)
        assert limit.left_s == pytest.approx(left)


def test_what_was_spent_is_exact_from_the_start(clock: Clock) -> None:
    limit = Patience(10, exact=True)
    clock.run(0.2, ran_s=0.1, waited_s=0.1)
    assert limit.spent_s == pytest.approx(0.1)
    clock.run(0.2, ran_s=0, waited_s=0)
    assert limit.spent_s == pytest.approx(0.3)


@pytest.mark.parametrize(("waited_s", "busy"), [(0.0, False), (0.05, False), (0.2, True)])
def test_a_machine_is_busy_if_others_had_a_tenth(
    clock: Clock, waited_s: float, busy: bool
) -> None:
    limit = Patience(10, exact=True)
    clock.run(1, ran_s=1 - waited_s, waited_s=waited_s)
    assert limit.is_busy == busy


def test_every_wait_ends(clock: Clock) -> None:
    limit = Patience(1)
    rounds = 0
    while not limit.is_over:
        clock.run(STRETCH_S, ran_s=0, waited_s=STRETCH_S)
        rounds += 1
    assert rounds <= 1 + 1 / (STRETCH_S * LEAST_SHARE)


@pytest.mark.parametrize(("program", "status"), [
    ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 128 + 9),
    ("while True: pass", patience.TIMED_OUT), ("input()", patience.TIMED_OUT),
])
def test_a_program_has_its_time(program: str, status: int) -> None:
    """One that works without end and one that waits without end are both killed."""
    seconds = "0.6" if status == patience.TIMED_OUT else "60"
    with subprocess.Popen(
        [sys.executable, patience.__file__, seconds, sys.executable, "-c", program],
        stdin=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:
        assert process.wait() == status


def test_the_kernel_tells_of_descendants() -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    burn = "print('on', flush=True)\nwhile True: pass"
    with subprocess.Popen(
        [sys.executable, "-c", program, burn], stdout=subprocess.PIPE, start_new_session=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"on\n"
        before = scheduled(descendants(os.getpid()))
        [grandchild] = set(descendants(child.pid)) - {child.pid}
        while scheduled([grandchild])[grandchild, grandchild][0] < 10**8 + \
                before[grandchild, grandchild][0]:
            pass
        assert 0 < share(before, scheduled(descendants(os.getpid()))) <= 1
        os.killpg(child.pid, 9)
