# SPDX-License-Identifier: Apache-2.0
"""The command line against real daemons, as a user runs it: processes, pipes, signals."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.hosts import PenstockHost

Port = Callable[[], int]
TIMEOUT_S = 60
PENSTOCK = [sys.executable, "-m", "penstock"]


def start(host: PenstockHost, *arguments: str, **popen: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PENSTOCK_DIR": str(host.directory)}
    return subprocess.Popen(
        [*PENSTOCK, *arguments],
        stdin=popen.pop("stdin", subprocess.DEVNULL),
        stdout=popen.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        env=environment,
        **popen,
    )


def finish(process: subprocess.Popen[bytes], status: int = 0) -> bytes:
    """Its standard output; fails when it ends otherwise or says anything on standard error."""
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == status, err.decode()
    if status == 0:     # on a busy machine the other end may take more than a second
        said = [line for line in err.splitlines() if not line.startswith(b"penstock: waiting")]
        assert said == []
    return out


def test_generated_messages_have_the_same_digest_at_both_ends(
    host: PenstockHost, peer: PenstockHost, port: Port
) -> None:
    stream = [f"aeron:udp?endpoint=127.0.0.1:{port()}", "1001"]
    receiver = start(peer, "sub", *stream, "--count", "20k", "--sha256", "--json")
    sender = start(host, "pub", *stream, "--count", "20k", "--size", "100", "--sha256", "--json")
    sent = json.loads(finish(sender))
    received = json.loads(finish(receiver))
    assert sent["messages"] == received["messages"] == 20_000
    assert sent["bytes"] == received["bytes"] == 2_000_000
    assert sent["sha256"] == received["sha256"]
    assert received["sessions"] == [
        {"session_id": sent["session_id"], "position": sent["position"]}
    ]


def test_lines_go_through_a_pipe(host: PenstockHost, tmp_path: Path) -> None:
    lines = b"".join(b"line %d\n" % n for n in range(1000))
    file = tmp_path / "lines"
    file.write_bytes(lines)
    receiver = start(host, "sub", "aeron:ipc", "5", "--until-end")
    finish(start(host, "pub", "aeron:ipc", "5", str(file)))
    assert finish(receiver) == lines


def test_records_go_from_stdin_to_a_file(host: PenstockHost, tmp_path: Path) -> None:
    records = b"".join(
        struct.pack("<I", n) + bytes(k % 256 for k in range(n)) for n in range(0, 3000, 7)
    )
    target = tmp_path / "records"
    receiver = start(
        host, "sub", "aeron:ipc", "6", "--length-prefixed", "--output", str(target),
        "--until-end", "--sha256",
    )
    sender = start(
        host, "pub", "aeron:ipc", "6", "--length-prefixed", stdin=subprocess.PIPE
    )
    out, err = sender.communicate(records, timeout=TIMEOUT_S)
    assert (out, sender.returncode) == (b"", 0), err
    assert finish(receiver).decode().strip() == hashlib.sha256(records).hexdigest()
    assert target.read_bytes() == records


def test_pub_says_that_there_is_no_subscriber(host: PenstockHost) -> None:
    sender = start(host, "pub", "aeron:ipc", "7", "--count", "1", "--timeout", "0.2")
    out, err = sender.communicate(timeout=TIMEOUT_S)
    assert sender.returncode == 2
    assert out == b""
    assert err.startswith(b"penstock: no receiver subscribed")
    assert err.count(b"\n") == 1


def test_a_bad_channel_is_one_line(host: PenstockHost) -> None:
    receiver = start(host, "sub", "aeron:udp?endpoint=localhost", "7")
    _, err = receiver.communicate(timeout=TIMEOUT_S)
    assert receiver.returncode == 2
    assert err.startswith(b"penstock: ")
    assert err.count(b"\n") == 1


def test_ctrl_c_ends_a_waiting_sub_with_130_and_its_result(
    host: PenstockHost,
) -> None:
    receiver = start(host, "sub", "aeron:ipc", "8", "--json")
    finish(start(host, "pub", "aeron:ipc", "8", "--count", "1"))
    receiver.send_signal(signal.SIGINT)
    assert json.loads(finish(receiver, 130))["messages"] == 1


def test_a_reader_that_goes_away_is_no_trouble(host: PenstockHost) -> None:
    reader, writer = os.pipe()
    receiver = start(host, "sub", "aeron:ipc", "9", stdout=writer)
    os.close(writer)
    os.close(reader)
    sender = start(host, "pub", "aeron:ipc", "9", "--count", "1")
    finish(sender)
    _, err = receiver.communicate(timeout=TIMEOUT_S)
    assert receiver.returncode in (141, -signal.SIGPIPE)
    assert err == b""


def test_stat_shows_daemon_and_counters(host: PenstockHost) -> None:
    shown = json.loads(finish(start(host, "stat", "--once", "--json")))
    assert shown["directory"] == str(host.directory)
    assert shown["daemon"]["pid"] > 0
    assert any(counter["type_id"] == 0 for counter in shown["counters"])
    assert isinstance(shown["status"], dict)
    mapped = next(c for c in shown["counters"] if c["label"].startswith("Bytes currently mapped"))
    text = finish(start(host, "stat", "--once")).decode()
    assert f"{mapped['value']:,} " in text


def test_ping_measures_what_pong_returns(
    host: PenstockHost, peer: PenstockHost, port: Port
) -> None:
    channels = [
        "--ping-channel", f"aeron:udp?endpoint=127.0.0.1:{port()}",
        "--pong-channel", f"aeron:udp?endpoint=127.0.0.1:{port()}",
    ]
    echo = start(peer, "pong", *channels)
    result = json.loads(
        finish(start(host, "ping", *channels, "--count", "200", "--warmup", "20", "--json"))
    )
    echo.send_signal(signal.SIGINT)
    finish(echo, 130)
    assert result["count"] == 200
    assert 0 < result["microseconds"]["min"] <= result["microseconds"]["p99"]


@pytest.mark.parametrize("what", ["kill", "stop"])
def test_a_daemon_that_goes_away_is_one_line(
    new_host: Callable[..., PenstockHost], what: str
) -> None:
    mortal = new_host()
    receiver = start(mortal, "sub", "aeron:ipc", "8", "--reattach", "0")
    finish(start(mortal, "pub", "aeron:ipc", "8", "--count", "1", "--size", "3"))
    getattr(mortal, what)()
    out, err = receiver.communicate(timeout=TIMEOUT_S)
    assert receiver.returncode == 2
    assert len(out) == 4
    assert err.startswith(b"penstock: the daemon in ")
    assert err.count(b"\n") == 1


def on_a_terminal(host: PenstockHost, *arguments: str) -> tuple[int, str]:
    """(exit status, what a terminal of 80 columns shows) of a command."""
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, 80))
    with start(host, *arguments, stdout=follower) as process:
        os.close(follower)
        _, err = process.communicate(timeout=TIMEOUT_S)
    seen = b""
    with contextlib.suppress(OSError):      # EIO: all is read
        while part := os.read(leader, 65536):
            seen += part
    os.close(leader)
    return process.returncode, seen.decode() + err.decode()


def test_a_terminal_gets_no_binary_data(host: PenstockHost) -> None:
    sender = start(host, "pub", "aeron:ipc", "91", "--count", "2", "--size", "9")
    status, seen = on_a_terminal(host, "sub", "aeron:ipc", "91", "--count", "2")
    finish(sender)
    assert status == 0
    assert seen.splitlines()[:2] == [
        r"\x00\x00\x00\x00\x00\x00\x00\x00\x00", r"\x01\x00\x00\x00\x00\x00\x00\x00\x00"
    ]


def test_records_are_not_written_to_a_terminal(host: PenstockHost) -> None:
    status, seen = on_a_terminal(host, "sub", "aeron:ipc", "91", "--length-prefixed")
    assert status == 2
    assert seen.startswith("penstock: --length-prefixed writes binary data")
