# SPDX-License-Identifier: Apache-2.0
"""The daemon's trace: whole lines in order, whatever the disk does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ConfigurationError
from penstock.daemon.observe import trace
from penstock.daemon.observe.trace import TraceFile

Open = Callable[..., TraceFile]


@pytest.fixture
def open_trace(tmp_path: Path) -> Iterator[Open]:
    """Traces of host ``a``, beside a directory of a daemon."""
    made: list[TraceFile] = []

    def begin(name: str = "trace.jsonl", **more: Any) -> TraceFile:
        opened = TraceFile.open(
            str(tmp_path / name), directory=tmp_path / "dir", host="a",
            **{"file_bytes": 0, **more},
        )
        made.append(opened)
        return opened

    yield begin
    for opened in made:
        opened.close()


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


def test_an_event_is_a_line(open_trace: Open, tmp_path: Path) -> None:
    opened = open_trace()
    for number in range(1000):
        opened.put("loss", {"image_id": number, "path": tmp_path})
    opened.close()
    found = events(tmp_path / "trace.jsonl")
    assert [event["fields"]["image_id"] for event in found] == list(range(1000))
    assert {(event["host"], event["event"]) for event in found} == {("a", "loss")}
    assert [event["t"] for event in found] == sorted(event["t"] for event in found)
    assert opened.dropped == 0


def test_what_the_disk_is_too_slow_for_is_counted_and_told(
    open_trace: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, go_on = threading.Event(), threading.Event()

    def slowly(*args: Any) -> str:
        writing.set()
        assert go_on.wait(30)
        return whole(*args)

    whole = trace.line
    monkeypatch.setattr(trace, "line", slowly)
    opened = open_trace(queue=10)
    opened.put("first", {})
    assert writing.wait(30)             # the thread holds what it took; the queue is empty
    for number in range(9):
        opened.put("kept", {"number": number})
    opened.put("too much", {}, weight=2)
    opened.put("kept", {"number": 9})
    opened.put("too much", {})
    opened.put("too much", {})
    assert opened.dropped == 3
    go_on.set()
    opened.close()
    found = [(event["event"], event["fields"]) for event in events(tmp_path / "trace.jsonl")]
    assert found == [
        ("first", {}), *(("kept", {"number": number}) for number in range(9)),
        ("trace_dropped", {"events": 1}), ("kept", {"number": 9}), ("trace_dropped", {"events": 2}),
    ]


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from penstock.daemon.observe.trace import TraceFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
path = sys.argv[1]
opened = TraceFile.open(path, directory=Path("/none"), host="a", file_bytes=0)
opened.put("before", {})
while not Path(path).stat().st_size:
    pass
def settled(events):
    return len(Path(path).read_bytes().splitlines()) + opened.dropped >= events
for end in (50, 100):           # the second wave tells what of the first is missing, and fails too
    for number in range(end - 50, end):
        opened.put("lost", {"number": number, "text": "x" * 100})
    while not settled(1 + end):
        pass
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
opened.put("after", {})
opened.close()
print(opened.dropped)
"""


def test_a_full_disk_makes_a_hole_not_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, timeout=60,
        check=True,
    )
    found = events(path)
    lost = int(done.stdout)
    written = sum(event["event"] == "lost" for event in found)
    notified = sum(e["fields"]["events"] for e in found if e["event"] == "trace_dropped")
    assert lost > 0
    assert (written + lost, notified) == (100, lost)
    assert (found[0]["event"], found[-1]["event"]) == ("before", "after")
    assert "File too large" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_new_daemon_goes_on_behind_the_last_whole_line(open_trace: Open, tmp_path: Path) -> None:
    first = open_trace()
    first.put("one", {})
    first.close()
    path = tmp_path / "trace.jsonl"
    with path.open("ab") as file:
        file.write(b'{"t": 17, "host": "a", "ev')
    second = open_trace()
    second.put("two", {})
    second.close()
    assert [event["event"] for event in events(path)] == ["one", "two"]
    path.write_bytes(b'{"t')                # not even one
    third = open_trace()
    third.put("three", {})
    third.close()
    assert [event["event"] for event in events(path)] == ["three"]


def test_a_long_trace_begins_anew(open_trace: Open, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    for number in range(30):                # each open is one batch
        opened = open_trace(file_bytes=1000)
        opened.put("event", {"number": number})
        opened.close()
    older = events(tmp_path / "trace.jsonl.1")
    numbers = [event["fields"]["number"] for event in older + events(path)]
    assert numbers == list(range(numbers[0], 30))
    assert all(file.stat().st_size <= 1000 for file in tmp_path.iterdir() if file.is_file())


def test_what_is_no_place_for_a_trace(open_trace: Open, tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("all of it")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    open_trace("taken.jsonl")
    for name, words in (
        ("thesis.txt", "not a trace"), ("fifo", "not a regular file"), ("folder", "Is a directory"),
        ("none/trace", "No such file"), ("taken.jsonl", "another daemon"),
        ("dir/trace", "daemon's directory"),
    ):
        with pytest.raises(ConfigurationError, match=words) as caught:
            open_trace(name)
        assert str(caught.value).startswith("trace.file: ")
    assert thesis.read_text() == "all of it"
