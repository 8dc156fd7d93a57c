# SPDX-License-Identifier: Apache-2.0
"""Time-outs that do not count the time in which other programs had the processors.

A time-out tells a wait that never ends from one that takes a while.  On a busy machine each wait
takes several times as long.  The kernel tells how long each thread ran and how long it waited for a
processor (``/proc/PID/task/TID/schedstat``).  If the processes of a test ran for r and waited for w
in a stretch of time, the part r ÷ (r + w) of the stretch counts.  If they had nothing to do, all of
it counts.

As a command, for the tests in C: ``patience.py SECONDS PROGRAM [ARGUMENT]...`` runs a program and
ends with its status, or kills it when the time-out is over and ends with 124.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

#: Waits that end within this are not looked into; later ones from here on, and so often.
STRETCH_S = 0.5
#: Of a stretch at least this part counts, so that every wait ends.
LEAST_SHARE = 0.02

Times = dict[tuple[int, int], tuple[int, int]]


def descendants(pid: int) -> list[int]:
    """The process and all that it has started, directly or not, that still live."""
    found = [pid]
    for process in found:
        try:
            for task in Path(f"/proc/{process}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        except OSError:
            continue            # it has ended
    return found


def scheduled(pids: list[int]) -> Times:
    """By process and thread: (ns that it ran, ns that it waited for a processor)."""
    found: Times = {}
    for pid in pids:
        try:
            tasks = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
        except OSError:
            continue
        for task in tasks:
            try:
                text = Path(f"/proc/{pid}/task/{task}/schedstat").read_text()
            except OSError:
                continue
            ran, waited, _ = text.split()
            found[pid, task] = int(ran), int(waited)
    return found


def share(before: Times, after: Times) -> float:
    """The part of the time between two looks that the threads could use."""
    ran = waited = 0
    for key, (ran_ns, waited_ns) in after.items():
        ran_before, waited_before = before.get(key, (0, 0))
        ran += max(0, ran_ns - ran_before)
        waited += max(0, waited_ns - waited_before)
    return 1.0 if ran + waited == 0 else max(LEAST_SHARE, ran / (ran + waited))


class Patience:
    """A time-out of ``seconds`` that this process and its descendants could use."""

    def __init__(self, seconds: float, *, exact: bool = False) -> None:
        """``exact``: check once, not only at a wait that lasts."""
        self._seconds = self._left_s = seconds
        self._began_s = self._at_s = time.monotonic()
        self._times: Times | None = scheduled(descendants(os.getpid())) if exact else None

    def _check(self, now_s: float) -> None:
        times = scheduled(descendants(os.getpid()))
        part = 1.0 if self._times is None else share(self._times, times)
        self._left_s -= (now_s - self._at_s) * part
        self._at_s, self._times = now_s, times

    @property
    def left_s(self) -> float:
        """0 when it is over."""
        now_s = time.monotonic()
        stretch_s = now_s - self._at_s
        if stretch_s >= STRETCH_S:
            self._check(now_s)
        elif self._times is None:
            return max(0.0, self._left_s - stretch_s)
        return max(0.0, self._left_s)       # the running stretch is looked into when it is over

    @property
    def is_over(self) -> bool:
        return self.left_s <= 0

    @property
    def spent_s(self) -> float:
        """What of it has been used so far."""
        self._check(time.monotonic())
        return self._seconds - self._left_s

    @property
    def is_busy(self) -> bool:
        """Whether other programs had the processors for a tenth of the time so far.  ``exact``."""
        return self.spent_s < 0.9 * (time.monotonic() - self._began_s)


#: The status of a command that was killed at its time-out; timeout(1) has the same.
TIMED_OUT = 124


def run(seconds: float, command: list[str]) -> int:
    """Run a command within a time-out.

    :return: its exit status, negative for a signal; TIMED_OUT if it was killed.
    """
    patience = Patience(seconds, exact=True)
    with subprocess.Popen(command) as process:
        while not patience.is_over:
            try:
                return process.wait(STRETCH_S)
            except subprocess.TimeoutExpired:
                continue
        process.kill()
    return TIMED_OUT


if __name__ == "__main__":
    status = run(float(sys.argv[1]), sys.argv[2:])
    sys.exit(status if status >= 0 else 128 - status)
