# SPDX-License-Identifier: Apache-2.0
"""What users get wrong: one clear typed error, in the client and on the command line."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.hosts import PenstockHost
from support.not_run import need_root
from support.processes import Peer

import penstock
from loopback.streams import TIMEOUT_S, connected, eventually, receive
from penstock import Client

Port = Callable[[], int]
NewHost = Callable[..., PenstockHost]
STREAM = 1001


def penstock_command(directory: Path, *args: str) -> list[str]:
    return [sys.executable, "-m", "penstock", *args, "--dir", str(directory)]


def complaint(argv: list[str], *, given: bytes = b"") -> str:
    """The one line with which a command ends; fails when it ends in any other way."""
    ended = subprocess.run(argv, input=given, capture_output=True, timeout=TIMEOUT_S, check=False)
    said = ended.stderr.decode()
    assert ended.returncode == 2, said
    assert ended.stdout == b""
    lines = [line for line in said.splitlines() if not line.startswith("penstock: waiting")]
    assert len(lines) == 1, said
    assert lines[0].startswith("penstock: ")
    assert "Traceback" not in said
    return lines[0].removeprefix("penstock: ").rstrip()


def refused(client: Client, command: str, channel: str) -> penstock.ChannelRefused:
    add = client.add_publication if command == "pub" else client.add_subscription
    with pytest.raises(penstock.ChannelRefused) as caught:
        add(channel, STREAM)
    assert "\n" not in str(caught.value)
    return caught.value


# ---- channels ------------------------------------------------------------------------------------

UDP = "aeron:udp?endpoint=127.0.0.1:40123"

CHANNELS = [
    ("unknown parameter", f"{UDP}|nonsense=1", "nonsense=1: .*accepted: endpoint"),
    ("unknown parameter of ours", f"{UDP}|ps-nonsense=1", "ps-nonsense=1"),
    ("parameter twice", f"{UDP}|endpoint=127.0.0.1:7", "endpoint=127.0.0.1:7: .*twice"),
    ("no address", "aeron:udp", "endpoint: is missing"),
    ("dynamic without control", f"{UDP}|control-mode=dynamic", "control: is missing"),
    ("manual with endpoint", f"{UDP}|control-mode=manual", "contradicts control-mode=manual"),
    ("endpoint on ipc", "aeron:ipc?endpoint=127.0.0.1:7", "no meaning with aeron:ipc"),
    ("no such medium", "aeron:tcp?endpoint=127.0.0.1:7", "aeron:udp.*aeron:ipc"),
    ("not a channel", "nonsense", "aeron:udp.*aeron:ipc"),
    ("term length", "aeron:ipc?term-length=100000", "term-length=100000: .*power of two.*64k"),
    ("term length too long", f"{UDP}|term-length=2g", "term-length=2g: .*1073741824"),
    ("mtu", f"{UDP}|mtu=1001", "mtu=1001: .*32"),
    ("port", "aeron:udp?endpoint=127.0.0.1:70000", "70000: .*65535"),
    ("number", f"{UDP}|session-id=abc", "session-id=abc: is not a number"),
    ("range", f"{UDP}|ttl=300", "ttl=300: .*0..255"),
    ("duration", f"{UDP}|linger=-1", "linger=-1: .*ms"),
    ("even multicast", "aeron:udp?endpoint=224.20.30.40:40456", "30.40:40456: .*224.20.30.41"),
]
CHANNEL_IDS = [name for name, _, _ in CHANNELS]


@pytest.mark.parametrize("command", ["pub", "sub"])
@pytest.mark.parametrize(("_name", "channel", "words"), CHANNELS, ids=CHANNEL_IDS)
def test_a_bad_channel_names_the_parameter_and_what_is_accepted(
    client: Client, command: str, _name: str, channel: str, words: str
) -> None:
    error = refused(client, command, channel)
    assert error.code == "invalid_channel"
    assert re.search(words, str(error)), str(error)


@pytest.mark.parametrize(
    ("command", "channel", "code", "words"),
    [
        ("pub", "aeron:udp?endpoint=224.20.30.41:40456|interface=203.0.113.9", "no_interface",
         "interface=203.0.113.9: .*ip addr"),
        ("sub", "aeron:udp?endpoint=224.20.30.41:40456|interface={eth77}", "no_interface",
         "eth77.*ip addr"),
        ("sub", "aeron:udp?endpoint=224.20.30.41:40456|interface=no-such.invalid",
         "no_interface", "interface=no-such.invalid: .*braces"),
        ("sub", f"{UDP}|interface=203.0.113.9", "no_interface", "203.0.113.9"),
        ("sub", f"{UDP}|interface={{eth77}}", "no_interface", "eth77"),
        ("sub", f"{UDP}|interface=no-such.invalid", "no_interface", "no-such.invalid"),
        ("pub", f"{UDP}|control=127.0.0.1:0|interface=203.0.113.9", "no_interface", "203.0.113.9"),
        ("pub", "aeron:udp?control=127.0.0.1:40771|control-mode=dynamic|interface={eth77}",
         "no_interface", "eth77"),
        ("sub", "aeron:udp?endpoint=203.0.113.9:40123", "no_interface",
         "203.0.113.9:40123.*ip addr"),
        ("pub", "aeron:udp?endpoint=no-such-host.invalid:40123", "unknown_host",
         "no-such-host.invalid"),
        ("pub", f"{UDP}|so-sndbuf=1g", "socket_buffer",
         "SO_SNDBUF of 1073741824.*net.core.wmem_max"),
        ("sub", f"{UDP}|so-rcvbuf=1g", "socket_buffer",
         "SO_RCVBUF of 1073741824.*net.core.rmem_max"),
    ],
)  # fmt: skip
def test_what_the_host_does_not_have_is_named(
    client: Client, command: str, channel: str, code: str, words: str
) -> None:
    error = refused(client, command, channel)
    assert error.code == code
    assert re.search(words, str(error)), str(error)


@pytest.mark.parametrize("command", ["pub", "sub"])
@pytest.mark.parametrize("channel", [f"{UDP}|nonsense=1", "aeron:ipc?term-length=100000"])
def test_a_bad_channel_on_the_command_line(
    host: PenstockHost, command: str, channel: str
) -> None:
    line = complaint(penstock_command(host.directory, command, channel, "1"))
    assert channel.partition("|")[2] in line
    assert "accepted" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pub", "aeron:ipc", "abc"], "'abc'"),
        (["pub", "aeron:ipc", "99999999999"], "99999999999"),
        (["sub", "aeron:ipc"], "STREAM"),
        (["pub", "aeron:ipc", "5", "/no/such/file"], "/no/such/file"),
        (["pub", "aeron:ipc", "5", "--count", "1x"], "'1x'"),
        (["pub", "aeron:ipc", "5", "--rate", "fast"], "'fast'"),
        (["sub", "aeron:ipc", "5", "--output", "/no/such/folder/file"], "/no/such/folder/file"),
        (["sub", "", "5"], "1 to 4095 characters"),
        (["nonsense"], "nonsense"),
        (["daemon", "--impair", "bogus=1"], "bogus=1.*accepted|bogus=1.*expected"),
        (["daemon", "--threading", "many"], "'many'"),
    ],
)
def test_bad_arguments_are_named(host: PenstockHost, arguments: list[str], words: str) -> None:
    assert re.search(words, complaint(penstock_command(host.directory, *arguments)))


def test_a_port_in_use_is_named(client: Client, host: PenstockHost, port: Port) -> None:
    number = port()
    channel = f"aeron:udp?endpoint=127.0.0.1:{number}"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", number))
        error = refused(client, "sub", channel)
        line = complaint(penstock_command(host.directory, "sub", channel, "1"))
    assert error.code == "address_in_use"
    for text in (str(error), line):
        assert f"127.0.0.1:{number}" in text
        assert "choose another port" in text
    with client.add_subscription(channel, STREAM) as subscription:
        assert subscription.local_addresses == (f"127.0.0.1:{number}",)


# ---- messages ------------------------------------------------------------------------------------


def test_a_message_over_the_limit_is_refused_with_the_limit(client: Client) -> None:
    with (
        client.add_publication("aeron:ipc?term-length=64k", STREAM) as publication,
        client.add_subscription("aeron:ipc?term-length=64k", STREAM) as subscription,
    ):
        connected(publication, subscription)
        limit = publication.max_message_length
        long = bytes(limit + 1)
        attempts: list[Callable[[], object]] = [
            lambda: publication.offer(long),
            lambda: publication.offer([long[:-1], b"x"]),
            lambda: publication.offer(memoryview(long)),
            lambda: publication.send(long, TIMEOUT_S),
            lambda: publication.offer_batch([b"x", long]),
            lambda: publication.send_batch([b"x", long], TIMEOUT_S),
        ]
        for attempt in attempts:
            words = f"{limit + 1} .*{limit} .*term-length"
            with pytest.raises(penstock.MessageTooLong, match=words):
                attempt()
        limit = publication.max_payload_length
        with pytest.raises(penstock.MessageTooLong, match=f"{limit + 1} .*{limit} .*offer"):
            publication.try_claim(limit + 1)
        assert publication.send(b"all is well", TIMEOUT_S) > 0
        assert receive(subscription, 1) == [b"all is well"]


@pytest.mark.parametrize(
    ("arguments", "given", "words"),
    [
        (["--count", "1", "--size", "100000"], b"", "100000 bytes .*8192 bytes.*term-length"),
        (["--length-prefixed"], struct.pack("<I", 100_000) + bytes(100_000), "100000 bytes"),
        (["--length-prefixed"], b"\1\0", "ends"),
        (["--length-prefixed"], struct.pack("<I", 9) + b"short", "ends"),
    ],
)
def test_bad_messages_on_the_command_line(
    host: PenstockHost, client: Client, arguments: list[str], given: bytes, words: str
) -> None:
    channel = "aeron:ipc?term-length=64k"
    with client.add_subscription(channel, 6):
        argv = penstock_command(host.directory, "pub", channel, "6", *arguments)
        line = complaint(argv, given=given)
    assert re.search(words, line), line


# ---- directories ---------------------------------------------------------------------------------

SOON = "--connect-timeout=0.1"
COMMANDS = (
    ["pub", "aeron:ipc", "1", "--count", "1", SOON], ["sub", "aeron:ipc", "1", SOON],
    ["ping", SOON], ["pong", SOON], ["stat", "--once"], ["flows"],
)  # fmt: skip


@pytest.mark.parametrize("command", [*COMMANDS, ["loss"]], ids=lambda command: command[0])
def test_without_a_daemon_it_is_said_how_to_start_one(tmp_path: Path, command: list[str]) -> None:
    directory = tmp_path / "nothing"
    line = complaint(penstock_command(directory, *command))
    assert f"penstock up --dir {directory}" in line


def test_without_a_daemon_the_client_says_how_to_start_one(tmp_path: Path) -> None:
    for directory in (tmp_path / "nothing", tmp_path):
        with pytest.raises(penstock.DaemonNotRunning, match="penstock up --dir"):
            penstock.connect(directory, timeout_s=0.1)
    (tmp_path / "file").write_text("text")
    with pytest.raises(penstock.DaemonNotRunning, match="penstock up --dir"):
        penstock.connect(tmp_path / "file", timeout_s=0.1)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_what_a_killed_daemon_left_is_no_daemon(new_host: NewHost, command: list[str]) -> None:
    mortal = new_host()
    mortal.kill()
    line = complaint(penstock_command(mortal.directory, *command))
    assert f"penstock up --dir {mortal.directory}" in line


@pytest.mark.parametrize("name", ["cnc.dat", "penstock.dat"])
@pytest.mark.parametrize("damage", ["version", "magic"])
def test_files_of_another_version_are_not_used(new_host: NewHost, name: str, damage: str) -> None:
    mortal = new_host()
    path = mortal.directory / name
    with path.open("r+b") as file:
        if damage == "version":
            file.seek(0 if name == "cnc.dat" else 8)
            file.write(struct.pack("<I", 0x7F000001))
        else:
            file.write(b"\xff" * 16)
    with pytest.raises(penstock.VersionMismatch, match=re.escape(str(path))):
        penstock.connect(mortal.directory)
    line = complaint(penstock_command(mortal.directory, "sub", "aeron:ipc", "1"))
    assert str(path) in line


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("thesis.txt", "all of it", "thesis.txt.*--dir"),
        ("cnc.dat", "of some other driver", "cnc.dat.*--dir"),
        ("daemon.lock", "penstock 99\n1\nmade\n", "another version of penstock.*remove it"),
    ],
)
def test_a_directory_that_is_not_ours_is_refused(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    (tmp_path / name).write_text(text)
    line = complaint(penstock_command(tmp_path, "daemon"))
    assert re.search(words, line), line
    assert str(tmp_path) in line
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [(name, text)]


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    for directory in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/penstock")):
        line = complaint(penstock_command(directory, "daemon"))
        assert str(directory) in line
        assert "--dir" in line


def test_a_second_daemon_in_one_directory(host: PenstockHost) -> None:
    line = complaint(penstock_command(host.directory, "daemon"))
    assert f"already running in {host.directory} (pid {host.pid})" in line
    with penstock.connect(host.directory) as client:
        assert client.status()["pid"] == host.pid


# ---- configuration -------------------------------------------------------------------------------

CONFIGS = [
    ("[publications]\nmtu_bites = 1408\n", "publications.mtu_bites: .*did you mean mtu_bytes"),
    ("[publication]\nmtu_bytes = 1408\n", "publication: .*did you mean publications"),
    ("[publications]\nmtu_bytes = \"big\"\n", "publications.mtu_bytes: is 'big', expected .*64"),
    ("[publications]\nmtu_bytes = 1001\n", "publications.mtu_bytes: is 1001, expected .*32"),
    ("[publications]\nterm_length_bytes = 100000\n",
     "publications.term_length_bytes: is 100000, expected .*power of two"),
    ("[publications]\nsparse = \"yes\"\n", "publications.sparse: is 'yes', expected .*true"),
    ("[timeouts]\nlinger = 5\n", "timeouts.linger"),
    ("[timeouts]\nunblock_timeout_ns = \"soon\"\n", "unblock_timeout_ns: is 'soon', expected"),
    ("[agents]\nidle = \"sleep\"\n", "agents.idle: is 'sleep', expected .*park"),
    ("[limits]\nclients = 0\n", "limits.clients: is 0, expected .*1"),
    ("limits = 5\n", "limits: is 5, expected a table"),
    ("[limits\n", "is not TOML: .*line 1"),
    ("[[stream]]\nchanel = \"x\"\n", r"stream\[1\].chanel: .*did you mean channel"),
    ("[[stream]]\nflow_control = \"fastest\"\n", r"flow_control: is 'fastest', expected"),
    ("[governor]\n", "governor: .*governor = true in the table scheduler"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "text", "words"),
    [*(("daemon", text, words) for text, words in CONFIGS), ("check", *CONFIGS[0])],
)
def test_a_bad_configuration_names_file_key_got_and_expected(
    tmp_path: Path, command: str, text: str, words: str
) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    argv = [sys.executable, "-m", "penstock"]
    if command == "daemon":
        argv += ["daemon", "--dir", str(tmp_path / "dir"), "--config", str(file)]
    else:
        argv += ["config", "check", str(file)]
    line = complaint(argv)
    assert line.startswith(f"{file}: ")
    assert re.search(words, line), line
    assert not (tmp_path / "dir").exists()


def test_a_cpu_that_this_host_does_not_have(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[agents]\nthreading = "dedicated"\nsender_cpu = 1023\n')
    line = complaint(penstock_command(tmp_path / "dir", "daemon", "--config", str(file)))
    assert re.search(r"ps-sender on CPU 1023.*sender_cpu and receiver_cpu", line), line
    assert not (tmp_path / "dir").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read: No such file"), (b"\xff\xfe", "UTF-8"), (b"a = 1\0", "TOML")],
)
def test_a_configuration_that_cannot_be_read(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "penstock.toml"
    if content is not None:
        file.write_bytes(content)
    line = complaint(penstock_command(tmp_path / "dir", "daemon", "--config", str(file)))
    assert line.startswith(f"{file}")
    assert words in line


# ---- a daemon that goes away ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["pub", "aeron:ipc", "21", "--count", "1", "--timeout", "60"],      # waits for a receiver
        ["sub", "aeron:ipc", "22"],
        ["ping", "--ping-channel", "aeron:ipc", "--pong-channel", "aeron:ipc"],
        ["pong", "--ping-channel", "aeron:ipc", "--pong-channel", "aeron:ipc"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_that_waits_reports_a_killed_daemon(
    new_host: NewHost, arguments: list[str]
) -> None:
    mortal = new_host()
    process = subprocess.Popen(
        penstock_command(mortal.directory, *arguments, "--reattach", "0"),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with penstock.connect(mortal.directory) as client:
        eventually(lambda: len(streams(client)) > 0, "the command does nothing")
    mortal.kill()
    out, said = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (2, b""), said
    assert said.startswith(b"penstock: the daemon in ")
    assert said.count(b"\n") == 1


def streams(client: Client) -> list[object]:
    now = client.status()
    return [*now["publications"], *now["subscriptions"]]


def test_a_command_is_not_left_waiting_by_a_daemon_that_stands_still(new_host: NewHost) -> None:
    frozen = new_host()
    os.kill(frozen.pid, signal.SIGSTOP)
    try:
        with pytest.raises(penstock.TimeoutExpired, match=re.escape(str(frozen.directory))):
            penstock.connect(frozen.directory, timeout_s=0.2)
    finally:
        os.kill(frozen.pid, signal.SIGCONT)


# ---- shared memory that is too small -------------------------------------------------------------


class SmallMemory:
    """A mount namespace in which a directory is a small memory file system."""

    def __init__(self, mount_point: Path, size: str) -> None:
        script = f'mount -t tmpfs -o size={size} none "$0" && echo \'{{"event": "ready"}}\' && cat'
        self._holder = Peer(
            ["sh", "-c", script, str(mount_point)],
            prefix=["unshare", "--mount", "--propagation", "private"],
        )
        self._holder.wait("ready")
        self.path = mount_point
        self.prefix = [
            "nsenter", f"--target={self._holder.process.pid}", "--mount",
            f"--wd={Path.cwd()}", "--",
        ]  # fmt: skip

    def run(self, *argv: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([*self.prefix, *argv], capture_output=True, check=False)

    def host(self) -> PenstockHost:
        return PenstockHost(self.path / "penstock", prefix=self.prefix)

    def close(self) -> None:
        self._holder.stop()


@pytest.fixture
def small_memory(tmp_path: Path) -> Iterator[Callable[[str], SmallMemory]]:
    need_root("memory file systems of a chosen size")
    with contextlib.ExitStack() as stack:

        def make(size: str) -> SmallMemory:
            point = tmp_path / "memory"
            point.mkdir()
            memory = SmallMemory(point, size)
            stack.callback(memory.close)
            return memory

        yield make


def test_memory_too_small_for_a_daemon(small_memory: Callable[[str], SmallMemory]) -> None:
    memory = small_memory("1m")
    argv = penstock_command(memory.path / "penstock", "daemon")
    line = complaint([*memory.prefix, *argv])
    numbers = re.search(r"needs (\d+) bytes, (\d+) available", line)
    assert numbers is not None, line
    assert int(numbers[2]) <= 1 << 20 < int(numbers[1])
    assert "make room" in line
    assert memory.run("ls", str(memory.path)).stdout == b""


#: One stream with the defaults, from the daemon to itself.
DEFAULTS = """
import sys, json, penstock
directory, channel = sys.argv[1:]
with penstock.connect(directory) as client:
    subscription = client.add_subscription(channel, 1)
    publication = client.add_publication(channel, 1)
    publication.wait_connected(10)
    received = []
    for number in range(3):
        publication.send(b"%d" % number * 1000, 10)
    while len(received) < 3 and subscription.wait(10):
        subscription.poll(lambda m, h: received.append(bytes(m)), 64)
    print(json.dumps({"event": "done", "exact": received == [b"%d" % n * 1000 for n in range(3)]}))
"""


def test_a_daemon_and_a_stream_fit_into_a_container(
    small_memory: Callable[[str], SmallMemory], port: Callable[[], int]
) -> None:
    """64 MB is what a container's /dev/shm has unless somebody requests more."""
    memory = small_memory("64m")
    host = memory.host()
    host.start()
    try:
        used = int(memory.run("du", "-s", "-B1", str(memory.path)).stdout.split()[0])
        assert used < 24 << 20, used
        channel = f"aeron:udp?endpoint=127.0.0.1:{port()}"
        with host.run("-c", DEFAULTS, str(host.directory), channel) as stream:
            assert stream.wait("done")["exact"] is True
            assert stream.finish() == 0
    finally:
        host.stop()


#: Publishes until a term cannot be had, and tells how it went.
FILLER = """
import sys, time, json, penstock
directory, channel = sys.argv[1:]
def say(**values): print(json.dumps(values), flush=True)
with penstock.connect(directory) as client:
    publication = client.add_publication(channel, 1)
    subscription = client.add_subscription(channel, 1)
    publication.wait_connected(10)
    received = []
    say(event="connected")
    sys.stdin.readline()
    sent = refused = 0
    deadline = time.monotonic() + 120
    while not refused and time.monotonic() < deadline:
        result = publication.offer(b"%d" % sent * 200)
        sent += result > 0
        refused = int(result == penstock.Offer.STORAGE)
        subscription.poll(lambda m, h: received.append(bytes(m)), 64)
    try:
        client.add_publication("aeron:ipc?term-length=16m", 2)
    except penstock.StorageError as error:
        say(event="refused", text=str(error), storage=refused)
    sys.stdin.readline()
    publication.send(b"room again", 10)
    while received[-1:] != [b"room again"] and subscription.wait(10):
        subscription.poll(lambda m, h: received.append(bytes(m)), 64)
    exact = received == [b"%d" % n * 200 for n in range(sent)] + [b"room again"]
    say(event="done", exact=exact, sent=sent)
"""


def test_memory_that_fills_up_refuses_and_kills_nobody(
    small_memory: Callable[[str], SmallMemory], tmp_path: Path
) -> None:
    memory = small_memory("64m")
    config = tmp_path / "penstock.toml"
    config.write_text(
        '[storage]\nbudget_percent = 100\ncounter_values_bytes = "64k"\nerror_log_bytes = "64k"\n'
        "[limits]\npublications = 64\nimages = 64\nsubscribers = 64\nclients = 16\n"
    )
    host = memory.host()
    host.start("--config", str(config))
    try:
        with host.run("-c", FILLER, str(host.directory), "aeron:ipc?term-length=4m") as filler:
            filler.wait("connected")
            glut = memory.path / "glut"
            assert memory.run("dd", "if=/dev/zero", f"of={glut}", "bs=64k").returncode != 0
            filler.say()
            notified = filler.wait("refused")
            assert re.search(r"\d+ bytes.*\d+", notified["text"]), notified
            assert notified["storage"] == 1
            assert memory.run("rm", str(glut)).returncode == 0
            filler.say()
            assert filler.wait("done")["exact"] is True
            assert filler.finish() == 0
        assert "Traceback" not in host.errors()
    finally:
        host.stop()
    assert memory.run("ls", str(memory.path)).stdout == b""


def test_memory_too_small_for_a_log_on_the_command_line(
    new_host: NewHost, tmp_path: Path
) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text('[storage]\nbudget_bytes = "1m"\n')
    small = new_host("--config", str(config))
    line = complaint(penstock_command(small.directory, "pub", UDP, "1", "--count", "1"))
    assert re.search(r"16781312 bytes.* 1048576 ", line), line

