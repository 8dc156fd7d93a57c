# SPDX-License-Identifier: Apache-2.0
"""``penstock daemon --trace`` and what draws it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.hosts import PenstockHost

import penstock
from loopback.streams import connected, eventually, pump
from loopback.test_bad_input import complaint, penstock_command
from penstock.sim.plots.trace import collect

Port = Callable[[], int]
NewHost = Callable[..., PenstockHost]
STREAM = 1001


def events(path: Path) -> list[dict[str, Any]]:
    """The whole lines."""
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return [json.loads(text) for text in whole.splitlines()]


def rows(path: Path) -> set[tuple[str, str, int]]:
    """(kind, field, value) of all that samples say of streams."""
    return {
        (kind, name, row[name])
        for event in events(path) if event["event"] == "sample"
        for kind in ("publications", "images")
        for row in event["fields"][kind]
        for name in row
    }


def test_the_last_event_is_the_end(new_host: NewHost, tmp_path: Path) -> None:
    """Also if a sample is being taken meanwhile, which is nearly always so here."""
    config = tmp_path / "trace.toml"
    config.write_text('[trace]\nsample_interval_ns = "1ms"\n', encoding="utf-8")
    for number in range(8):
        path = tmp_path / f"{number}.jsonl"
        host = new_host("--trace", str(path), "--config", str(config))
        eventually(lambda path=path: len(events(path)) > 3, "no samples")
        assert host.end() == 0
        assert events(path)[-1]["event"] == "stopping"


def test_two_daemons_trace_a_lossy_transfer(
    new_host: NewHost, port: Port, tmp_path: Path
) -> None:
    near, far = tmp_path / "near.jsonl", tmp_path / "far.jsonl"
    sender = new_host("--trace", str(near))
    receiver = new_host("--trace", str(far), "--impair", "recv-loss=20%,seed=3")
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with (
        penstock.connect(sender.directory) as client,
        penstock.connect(receiver.directory) as remote,
        remote.add_subscription(channel, STREAM) as subscription,
        client.add_publication(channel, STREAM) as publication,
    ):
        connected(publication, subscription)
        sent = [b"%d" % number * 300 for number in range(2000)]
        assert pump(publication, sent, [subscription]) == [sent]
        end = publication.position
        eventually(
            lambda: ("publications", "position", end) in rows(near)
            and ("images", "slowest_subscriber", end) in rows(far),
            "no samples show the end of the transfer",
        )
    assert sender.end() == receiver.end() == 0
    for path in (near, far):
        found = events(path)
        assert [event["t"] for event in found] == sorted(event["t"] for event in found)
        assert (found[0]["event"], found[-1]["event"]) == ("started", "stopping")
    assert {"client_added", "publication_connected"} <= {event["event"] for event in events(near)}
    assert {"image_state", "loss"} <= {event["event"] for event in events(far)}
    picture = collect([near, far])
    (row,) = [series.values for name, series in picture.publications.items() if "1001" in name]
    assert max(value["position"] for value in row) == end
    drawn = tmp_path / "both.png"
    command = [sys.executable, "-m", "penstock", "sim", "plot", str(near), str(far)]
    subprocess.run([*command, "--output", str(drawn)], check=True)
    assert drawn.read_bytes().startswith(b"\x89PNG")


def test_a_new_daemon_goes_on_in_the_trace_of_a_killed_daemon(
    new_host: NewHost, tmp_path: Path
) -> None:
    path = tmp_path / "trace.jsonl"
    mortal = new_host("--trace", str(path))
    with penstock.connect(mortal.directory) as client:
        client.add_publication("aeron:ipc?term-length=64k", STREAM)
        mortal.kill()
        mortal.start("--trace", str(path))
        assert client.status()["publications"]
    assert mortal.end() == 0
    found = [event["event"] for event in events(path)]
    assert found.count("started") == 2
    assert found.index("client_returned") > found.index("client_added")


def test_a_trace_that_cannot_be_written(host: PenstockHost, tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("all of it")
    directory = tmp_path / "directory"
    line = complaint(penstock_command(directory, "daemon", "--trace", str(thesis)))
    assert line.startswith(f"trace.file: {thesis} exists and is not a trace")
    assert not directory.exists()


def test_a_trace_that_cannot_be_read(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    text = tmp_path / "text"
    text.write_text('{"t": 1}\n')
    none = tmp_path / "none"
    for path, words in ((empty, "no samples"), (text, ":1: this line"), (none, "No such")):
        line = complaint([sys.executable, "-m", "penstock", "sim", "plot", str(path)])
        assert line.startswith(str(path))
        assert words in line


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_run(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "sim"]
    for name, words in (("x.nonsense", "name ends in none of"), ("none/x.png", "no such folder")):
        path = str(tmp_path / name)
        for more in (["run", "paused-max", "--plot", path], ["plot", "nothing", "--output", path]):
            assert f"{path}: " in (line := complaint([*command, *more]))
            assert words in line


def test_the_story_of_a_stall_is_in_the_trace(new_host: NewHost, tmp_path: Path) -> None:
    """A reader that polls late: who held the publisher, and that it was relieved."""
    file = tmp_path / "host.jsonl"
    host = new_host("--trace", str(file))
    channel = "aeron:ipc?term-length=64k|ps-low-watermark=0.97"
    with (
        penstock.connect(host.directory, name="late reader") as client,
        client.add_publication(channel, STREAM) as publication,
        client.add_subscription(channel, STREAM) as subscription,
    ):
        connected(publication, subscription)

        def held() -> bool:
            return publication.offer(bytes(1000)) < 0 and publication.pressure().pressed_ns > 0

        eventually(held, "the log is full")
        (row,) = client.status()["publications"]
        assert "state ps-low-watermark=0.5" in row["warnings"][0]
        sent = publication.position
        eventually(lambda: subscription.poll(lambda m, h: None, 100) == 0
                   and subscription.images[0].position == sent, "all is read")
        eventually(lambda: publication.pressure().watermark in ("low", "normal"), "relieved")
    assert host.end() == 0
    shown = subprocess.run(
        [sys.executable, "-m", "penstock", "trace", str(file), "--show-backpressure"],
        capture_output=True, text=True, check=True,
    ).stdout
    story = [line for line in shown.splitlines() if f"stream {STREAM} session" in line]
    assert len(story) == 2
    assert "is held by slow subscriber: client" in story[0]
    assert "'late reader'" in story[0]
    assert "continues: held for" in story[1]
    assert "backpressure_warning" in shown
    assert "1 stalls ended" in shown
