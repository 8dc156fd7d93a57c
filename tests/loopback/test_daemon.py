# SPDX-License-Identifier: Apache-2.0
"""A real daemon process: who may start where, what it answers, what it leaves behind."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zmq
from support.hosts import PenstockHost
from support.patience import Patience

import penstock
from penstock.client._inspect import request_status
from penstock.config.protocol import codec, control
from penstock.core.errors import StorageError

TIMEOUT_S = 30.0
NewHost = Callable[..., PenstockHost]

# A client that adds a publication and a counter, says so, and then sits still.
SITTER = """
import sys, time, penstock
client = penstock.connect(sys.argv[1], name="sitter")
pub = client.add_publication("aeron:ipc?term-length=64k", stream_id=int(sys.argv[2]))
counter = client.add_counter("sitter's")
with pub.try_claim(64) if len(sys.argv) > 3 else open("/dev/null") as claim:
    print("ready", flush=True)
    time.sleep(600)
"""


def status(host: PenstockHost) -> dict[str, Any]:
    return request_status(host.directory, TIMEOUT_S)


def until(condition: Callable[[], bool], what: str) -> None:
    """Asks again and again: the daemon tells nobody when it has finished something."""
    patience = Patience(TIMEOUT_S)
    while not condition():
        assert not patience.is_over, f"not within {TIMEOUT_S} s: {what}"
        time.sleep(0.02)


def sitter(host: PenstockHost, stream: int, *args: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", SITTER, str(host.directory), str(stream), *args]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(TIMEOUT_S)
    assert process.stdout is not None
    process.stdout.close()


def daemon(directory: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """A daemon that is expected to give up at once."""
    argv = [sys.executable, "-m", "penstock", "daemon", "--dir", str(directory), *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def dealer(context: zmq.Context[Any], host: PenstockHost) -> zmq.Socket[bytes]:
    made: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    made.setsockopt(zmq.LINGER, 0)
    made.setsockopt(zmq.RCVTIMEO, int(TIMEOUT_S * 1000))
    made.connect(f"ipc://{host.directory}/control.sock")
    return made


# ---- the directory -------------------------------------------------------------------------------


def test_a_second_daemon_is_refused_with_the_pid_of_the_first(host: PenstockHost) -> None:
    second = daemon(host.directory)
    assert second.returncode == 2
    assert second.stdout == ""
    assert str(status(host)["pid"]) in second.stderr
    assert len(second.stderr.splitlines()) == 1


def test_a_daemon_that_is_stopped_sends_what_it_accepted(
    new_host: NewHost, host: PenstockHost, port: Callable[[], int]
) -> None:
    sender = new_host()
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}"
    received: list[bytes] = []
    with penstock.connect(host.directory) as client:
        subscription = client.add_subscription(channel, 105)
        with penstock.connect(sender.directory) as publisher:
            publication = publisher.add_publication(channel, stream_id=105)
            until(lambda: publication.offer(b"first") > 0, "connected")
            for _ in range(50):
                until(lambda: publication.offer(b"x" * 1000) > 0, "offered")
        sender.stop()
        until(
            lambda: bool(subscription.poll(lambda m, h: received.append(bytes(m)), limit=10))
            and len(received) >= 51,
            "all messages",
        )


def test_a_daemon_that_was_killed_is_followed_by_another(new_host: NewHost) -> None:
    host = new_host()
    with host.pub("--channel=aeron:ipc?term-length=64k", "--stream=1", "--count=1") as client:
        client.wait("added")
        host.kill()
        client.process.kill()           # else the new daemon would go on for it
        client.process.wait()
    assert list((host.directory / "publications").iterdir())
    host.start()
    assert status(host)["publications"] == []
    assert not list((host.directory / "publications").iterdir())
    host.stop()
    assert not host.directory.exists()


def test_a_directory_of_another_program_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("all of it")
    refused = daemon(tmp_path)
    assert refused.returncode == 2
    assert "thesis.txt" in refused.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config.write_text(f'[metrics]\nlisten = "{address}"\n')
        refused = daemon(tmp_path / "dir", "--config", str(config))
    assert refused.returncode == 2
    assert address in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert not (tmp_path / "dir").exists()


# ---- clients -------------------------------------------------------------------------------------


def test_a_killed_client_loses_everything_it_had(host: PenstockHost) -> None:
    process = sitter(host, 100)
    (row,) = [c for c in status(host)["clients"] if c["name"] == "sitter"]
    assert (row["pid"], row["publications"], row["counters"]) == (process.pid, 1, 1)
    end(process)

    def gone() -> bool:
        now = status(host)
        return not [c for c in now["clients"] if c["name"] == "sitter"] and not [
            p for p in now["publications"] if p["stream_id"] == 100
        ]

    until(gone, "client and publication are gone")


def test_the_claim_of_a_killed_client_does_not_block_the_others(host: PenstockHost) -> None:
    with penstock.connect(host.directory) as client:
        subscription = client.add_subscription("aeron:ipc", 101)
        publication = client.add_publication("aeron:ipc?term-length=64k", stream_id=101)
        until(lambda: publication.is_connected, "connected")
        process = sitter(host, 101, "claim")
        until(lambda: publication.offer(b"after") > 0, "offered")
        end(process)
        received: list[bytes] = []
        until(
            lambda: bool(subscription.poll(lambda m, h: received.append(bytes(m)), limit=10)),
            "the message behind the dead claim",
        )
        assert received == [b"after"]


def test_a_stopped_client_is_not_taken_for_dead(host: PenstockHost) -> None:
    process = sitter(host, 102)
    process.send_signal(signal.SIGSTOP)
    try:
        with penstock.connect(host.directory) as client:
            client.add_publication("aeron:ipc?term-length=64k", stream_id=103)
        assert [c for c in status(host)["clients"] if c["name"] == "sitter"]
    finally:
        end(process)


# ---- what is said to it --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "correlation"),
    [
        (b"", 0), (b"\xff" * 100, 0), (b"\x91" * 60_000, 0),
        (msgpack.packb([1, "Nonsense", 7, {}]), 7),
        (msgpack.packb([1, "AddPublication", 8, {"channel": 5, "stream_id": "x"}]), 8),
        (msgpack.packb([99, "GetStatus", 9, {}]), 9),
    ],
)
def test_what_cannot_be_understood_is_counted_and_answered(
    host: PenstockHost, data: bytes, correlation: int
) -> None:
    before = status(host)["malformed_messages"]
    with zmq.Context() as context, dealer(context, host) as channel:
        channel.send(data)
        answered, message = codec.decode(channel.recv())
    assert isinstance(message, control.Failure)
    assert (message.code, answered) == ("malformed", correlation)
    assert status(host)["malformed_messages"] == before + 1


def test_without_a_lease_only_the_status_is_told(host: PenstockHost) -> None:
    requests = [control.Hello(token=b"guess"), control.AddPublication(channel="aeron:ipc",
                                                                      stream_id=1)]
    with zmq.Context() as context, dealer(context, host) as channel:
        for request in requests:
            channel.send(codec.encode(request, 5))
            _, message = codec.decode(channel.recv())
            assert isinstance(message, control.Failure)
            assert message.code == "not_leased"


@pytest.mark.parametrize("word", [b"garbage", codec.encode(control.GetStatus(), 1)])
def test_a_wrong_first_word_on_the_lease_socket_is_refused(
    host: PenstockHost, word: bytes
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.connect(str(host.directory / "lease.sock"))
        connection.send(word)
        _, message = codec.decode(connection.recv(65536))
        assert isinstance(message, control.Failure)
        assert message.code == "malformed"
        assert connection.recv(65536) == b""


def test_what_does_not_fit_is_refused_with_the_numbers(
    new_host: NewHost, tmp_path: Path
) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text('[storage]\nbudget_bytes = "1m"\n')
    host = new_host("--config", str(config))
    with penstock.connect(host.directory) as client:
        with pytest.raises(StorageError, match=r"16781312 bytes.* 1048576 "):
            client.add_publication("aeron:udp?endpoint=127.0.0.1:40123", stream_id=1)
        client.add_publication("aeron:udp?endpoint=127.0.0.1:40123|term-length=64k", stream_id=1)


# ---- what it tells -------------------------------------------------------------------------------


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(str(self._path))


def get(host: PenstockHost, path: str) -> tuple[int, str]:
    connection = UnixConnection(host.directory / "metrics.sock")
    connection.request("GET", path)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def test_the_metrics_socket_serves_metrics_and_health(host: PenstockHost) -> None:
    with penstock.connect(host.directory) as client:
        publication = client.add_publication("aeron:ipc?term-length=64k", stream_id=104)
        client.add_subscription("aeron:ipc", 104)
        until(lambda: publication.offer(b"x" * 32) > 0, "offered")
        code, text = get(host, "/metrics")
    assert code == 200
    (line,) = [x for x in text.splitlines() if 'stream="104"' in x and "position_bytes" in x]
    assert line.endswith(" 64.0")
    until(lambda: get(host, "/healthz") == (200, "ok\n"), "healthy")


def test_the_metrics_socket_serves_the_flows(host: PenstockHost) -> None:
    with penstock.connect(host.directory) as client:
        publication = client.add_publication("aeron:ipc?term-length=64k", stream_id=105)
        client.add_subscription("aeron:ipc", 105)
        until(lambda: publication.offer(b"x" * 32) > 0, "offered")
        code, text = get(host, "/flows")
        (row,) = [x for x in json.loads(text)["streams"] if x["stream_id"] == 105]
        one_code, one_text = get(host, f"/flows/{row['publication_id']}")
    assert (code, one_code) == (200, 200)
    assert (row["position"], row["queue_depth_bytes"], row["cause"]) == (64, 64, "none")
    assert row["queue_peak_bytes"] == 64    # never below the depth, before the sender's turn too
    one = json.loads(one_text)
    assert {key: one[key] for key in row} == row
    assert (one["peers"], one["local_subscribers"]) == ([], 1)
    code, text = get(host, "/flows/1")
    assert code == 404
    assert "no publication has the id 1" in json.loads(text)["error"]
    assert get(host, "/flows/x")[0] == 404


def test_the_event_feed_is_numbered(host: PenstockHost) -> None:
    with zmq.Context() as context, context.socket(zmq.SUB) as feed:
        feed.setsockopt(zmq.LINGER, 0)
        feed.setsockopt(zmq.RCVTIMEO, int(TIMEOUT_S * 1000))
        feed.subscribe(b"")
        feed.connect(f"ipc://{host.directory}/events.sock")
        numbers = []
        while len(numbers) < 3:
            with penstock.connect(host.directory, name="noise"):
                pass
            while feed.poll(50):
                name, data = feed.recv_multipart()
                event = msgpack.unpackb(data)
                assert event["name"] == name.decode()
                numbers.append(event["sequence"])
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
