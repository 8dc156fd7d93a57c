# SPDX-License-Identifier: Apache-2.0
"""What a person sees on a terminal: progress, totals, and text only."""

from __future__ import annotations

import io
import re

import pytest

from penstock.cli import _progress
from penstock.cli._progress import Progress
from penstock.cli._records import printable, terminal_writer


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """Each thing that was drawn."""
        return [line for line in re.split(r"\r\x1b\[K|\n", self.getvalue()) if line]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(_progress.time, "monotonic", made.monotonic)
    return made


def rates(line: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"([\d,]+)/s", line)]


def test_progress_never_shows_an_absurd_rate(clock: Clock) -> None:
    """1000 messages a second, the first 256 of them at once."""
    terminal = Terminal()
    with Progress("sent", total=10_000, stream=terminal) as progress:
        progress.add(256, 2560)
        for _ in range(1000):
            clock.now += 0.01
            progress.add(10, 100)
    *drawn, last = terminal.lines()
    assert len(drawn) > 50
    assert all(rates(line) == [pytest.approx(1000, rel=0.02)] for line in drawn)
    assert last == "sent 10,256 of 10,000 messages, 0.1 MB in 10.0 s, 1,026/s, 82.0 kb/s"


@pytest.mark.parametrize("pause_s", [0.0, 1e-6, 0.08])
def test_a_short_transfer_shows_its_totals_only(clock: Clock, pause_s: float) -> None:
    terminal = Terminal()
    with Progress("sent", stream=terminal) as progress:
        progress.add(2, 7)
        clock.now += pause_s
        progress.add(1, 4)
    assert terminal.getvalue() == f"\r\x1b[Ksent 3 messages, 11 B in {pause_s:.1f} s\n"


def test_the_rate_counts_the_transfer_and_no_wait_around_it(clock: Clock) -> None:
    progress = Progress("received")
    clock.now += 50.0
    progress.add(500, 500)
    clock.now += 1.0
    progress.add(500, 500)
    clock.now += 50.0
    assert progress.summary()["seconds"] == 1.0
    assert progress.summary()["messages_per_s"] == 1000.0


def test_one_message_has_no_rate(clock: Clock) -> None:
    progress = Progress("received")
    progress.add(1, 5)
    clock.now += 7.0
    assert progress.summary() == {
        "messages": 1, "bytes": 5, "seconds": 0.0, "messages_per_s": 0.0, "bits_per_s": 0.0
    }
    assert progress.totals() == "received 1 message, 5 B in 0.0 s"


def test_nothing_is_drawn_where_nothing_came_or_in_a_pipe() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    with Progress("received", stream=terminal):
        pass
    with Progress("received", stream=pipe) as progress:
        progress.add(1, 1)
    assert (terminal.getvalue(), pipe.getvalue()) == ("", "")


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (b"plain \xc3\xa4\xe2\x82\xac", "plain \u00e4\u20ac"),
        (b"a\tb", "a\tb"),
        (b"\x00\x01\x07\x1b[2J\x7f", r"\x00\x01\x07\x1b[2J\x7f"),
        (b"\xff\xfe", r"\xff\xfe"),
        (b"two\nlines\r", r"two\nlines\r"),
        ("\u202eright to left\x9b31m".encode(), r"\u202eright to left\x9b31m"),
        (b"", ""),
    ],
)
def test_a_terminal_gets_text(message: bytes, shown: str) -> None:
    assert printable(memoryview(message)) == shown
    target = io.BytesIO()
    terminal_writer(target, "ascii")(message)
    assert target.getvalue().decode("ascii") == (
        shown.encode("ascii", "backslashreplace").decode() + "\n"
    )
