# SPDX-License-Identifier: Apache-2.0
"""``penstock trace``: a line for each event, and the story of each stall."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from penstock.cli import cli

START = 1_777_888_802 * 10**9
HELD = {"publication_id": 3, "stream_id": 1001, "session_id": 7, "cause": "slow_subscriber",
        "culprit": "client 3 'app' (pid 12)", "depth_bytes": 65536, "peak_bytes": 65536,
        "episodes": 1}


def write(path: Path, host: str, *events: tuple[int, str, dict[str, Any]]) -> Path:
    path.write_text("".join(
        json.dumps({"t": at_ns, "host": host, "event": name, "fields": fields}) + "\n"
        for at_ns, name, fields in events
    ))
    return path


def shown(*arguments: Any) -> Result:
    return CliRunner().invoke(cli, ["trace", *map(str, arguments)])


def test_traces_of_several_hosts_are_merged_by_time(tmp_path: Path) -> None:
    near = write(tmp_path / "a", "a", (START, "started", {}), (START + 2000, "sample", {"x": 1}),
                 (START + 3000, "client_added", {"client_id": 4, "name": "\x1b[2J"}))
    far = write(tmp_path / "b", "b", (START + 1000, "started", {"version": "1"}))
    assert shown(near, far).output.splitlines() == [
        "2026-05-04T10:00:02.000000Z a started",
        "2026-05-04T10:00:02.000001Z b started version=1",
        "2026-05-04T10:00:02.000003Z a client_added client_id=4 name=\\x1b[2J",
    ]
    assert "sample x=1" in shown(near, "--samples").output


def test_stalls_are_explained_inline(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a", "a", (START, "pressure_triggered", HELD),
        (START + 10**6, "client_gone", {}),
        (START + 5 * 10**8, "pressure_relieved",
         {**HELD, "duration_ns": 5 * 10**8, "drained_messages": 1024}),
        (START + 6 * 10**8, "pressure_triggered", {**HELD, "cause": "socket", "culprit": ""}),
        (START + 7 * 10**8, "pressure_relieved",
         {**HELD, "duration_ns": 10**8, "drained_messages": None, "episodes": 9}),
        (START + 8 * 10**8, "pressure_triggered", {**HELD, "publication_id": 4, "stream_id": 2}),
    )
    who = "slow subscriber: client 3 'app' (pid 12)"
    assert shown(file, "--show-backpressure").output.splitlines() == [
        "2026-05-04T10:00:02.000000Z a + stream 1001 session 7 is held by "
        f"{who}, 65,536 bytes behind",
        "2026-05-04T10:00:02.001000Z a client_gone",
        "2026-05-04T10:00:02.500000Z a - stream 1001 session 7 continues: held for 0.500000 s by "
        f"{who}; 1,024 messages drained, at most 65,536 bytes behind",
        "2026-05-04T10:00:02.600000Z a + stream 1001 session 7 is held by socket, 65,536 bytes "
        "behind",
        "2026-05-04T10:00:02.700000Z a - stream 1001 session 7 continues: held for 0.100000 s by "
        f"{who}; messages drained, at most 65,536 bytes behind (the last of 9 stalls since the "
        "last report)",
        f"2026-05-04T10:00:02.800000Z a + stream 2 session 7 is held by {who}, 65,536 bytes behind",
        "2 stalls ended; publishers were held for 0.600000 s",
        f"stream 2 session 7 has been held since 2026-05-04T10:00:02.800000Z by {who}",
    ]
    assert "pressure_triggered publication_id=3" in shown(file).output


def test_simulated_clocks_are_seconds(tmp_path: Path) -> None:
    file = write(tmp_path / "a", "h", (1_500_000_000, "started", {}))
    assert shown(file).output == "1.500000 h started\n"


@pytest.mark.parametrize("line", ["x", "[]", "{}", '{"t": "1", "event": "e", "fields": {}}'])
def test_a_line_that_is_no_event_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "t"
    file.write_text(f'{{"t": 1, "host": "a", "event": "e", "fields": {{}}}}\n{line}\n')
    result = shown(file)
    assert result.exit_code == 1
    assert "line 2 is not an event of a trace" in result.output


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    file = write(tmp_path / "t", "a", (1, "e", {}))
    with file.open("a") as more:
        more.write('{"t": 2')
    assert shown(file).output == "0.000000 a e\n"
