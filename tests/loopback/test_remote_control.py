# SPDX-License-Identifier: Apache-2.0
"""Groups over TCP with CURVE keys: who may come in, what is served, and hostile callers."""

from __future__ import annotations

import contextlib
import re
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
import zmq
from support.hosts import PenstockHost, penstock_host
from zmq.utils.monitor import recv_monitor_message

import penstock
from loopback.streams import eventually
from loopback.test_groups import EXPIRY_NS, MESSAGE, Group, payloads
from penstock.client import (
    CurveKeys,
    DaemonUnreachable,
    GroupControl,
    GroupRefused,
    NotAuthorised,
    RangeNotRetained,
)
from penstock.config.protocol import codec, control
from penstock.core.errors import ConfigurationError, InvalidArgument
from penstock.daemon.connections import STRANGERS

STREAM = 3001


def keygen(folder: Path, name: str, *more: str) -> str:
    """Runs ``penstock keygen``; the line for the allow-list."""
    argv = [sys.executable, "-m", "penstock", "keygen", "--out", str(folder), "--name", name, *more]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout


@attrs.frozen(kw_only=True)
class Served:
    """A daemon that serves groups over TCP, and keys."""

    host: PenstockHost
    address: str
    server_key: str
    keys: Path

    def control(
        self, name: str = "query", *, server_key: str | None = None, timeout_s: float = 10.0
    ) -> GroupControl:
        return GroupControl(
            address=self.address, keys=CurveKeys.load(self.keys / f"{name}.key_secret"),
            server_key=server_key or self.server_key, timeout_s=timeout_s,
        )


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("keys")
    allowed = folder / "allowed"
    keygen(folder, "daemon")
    keygen(folder, "stranger")
    allowed.write_text("# who may read\n" + keygen(folder, "query"), encoding="utf-8")
    config = folder / "penstock.toml"
    config.write_text(
        f'[control_tcp]\nlisten = "127.0.0.1:0"\nsecret_key = "{folder}/daemon.key_secret"\n'
        f'clients = "{allowed}"\n', encoding="utf-8",
    )
    with penstock_host(folder / "penstock", "--config", str(config)) as host:
        found = None

        def announced() -> bool:
            nonlocal found
            found = re.search(r"served on (tcp://\S+) with the key (\S+)", host.errors())
            return found is not None

        eventually(announced, "the daemon does not say where it serves")
        assert found is not None
        yield Served(host=host, address=found[1], server_key=found[2], keys=folder)


@pytest.fixture
def client(served: Served) -> Iterator[penstock.Client]:
    with penstock.connect(served.host.directory) as made:
        yield made


# ---- keys ----------------------------------------------------------------------------------------


def test_a_group_is_read_from_afar(served: Served, client: penstock.Client) -> None:
    with served.control() as control_, \
            client.add_publication("aeron:ipc?term-length=1m", STREAM) as publication:
        group = Group(control_, "aeron:ipc", STREAM)
        for n in range(300):
            assert publication.offer(b"%d" % n) > 0
        eventually(lambda: group.log().end_position == publication.position, "no data")
        log = group.log()
        pieces = group.fetch(log, 0, log.end_position)
        assert [m for piece in pieces for m in payloads(piece)] == [b"%d" % n for n in range(300)]
        assert group.acknowledge(log.end_position).logs[0].committed == log.end_position
        with pytest.raises(RangeNotRetained):
            group.fetch(log, 0, log.end_position)
        group.close()


def test_a_strangers_key_is_refused_at_once(served: Served) -> None:
    with served.control("stranger", timeout_s=30) as control_, \
            pytest.raises(NotAuthorised, match="allow-list"):
        control_.groups()


def test_a_key_is_let_in_when_it_is_added_and_out_when_it_is_removed(served: Served) -> None:
    allowed = served.keys / "allowed"
    before = allowed.read_text(encoding="utf-8")
    line = keygen(served.keys, "late")
    with served.control("late") as control_:
        with pytest.raises(NotAuthorised):
            control_.groups()
        allowed.write_text(before + line, encoding="utf-8")
        assert control_.groups() == []
        allowed.write_text(before, encoding="utf-8")
        with pytest.raises(GroupRefused, match="allow-list"):
            control_.groups()


def test_another_daemons_key_is_no_daemon(served: Served) -> None:
    wrong = CurveKeys.load(served.keys / "stranger.key_secret").public
    with served.control(server_key=wrong, timeout_s=8) as control_, \
            pytest.raises((NotAuthorised, DaemonUnreachable)):
        control_.groups()


def test_there_is_no_plain_tcp(served: Served) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as plain:
        plain.setsockopt(zmq.LINGER, 0)
        with plain.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_DISCONNECTED
                                      | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL) as refusals:
            plain.connect(served.address)
            with contextlib.suppress(zmq.Again):    # a refusal can come first: nowhere to send to
                plain.send(codec.encode(control.ListGroups(), 1), zmq.DONTWAIT)
            assert refusals.poll(20_000)
            assert not plain.poll(0)
            plain.disable_monitor()
    with pytest.raises(InvalidArgument, match="no plain TCP"):
        GroupControl(address=served.address)


def test_nobody_there_is_said_with_address_and_time(served: Served) -> None:
    with pytest.raises(DaemonUnreachable) as error:
        GroupControl(
            address="tcp://127.0.0.1:9", keys=CurveKeys.load(served.keys / "query.key_secret"),
            server_key=served.server_key, timeout_s=0.5,
        ).groups()
    assert error.value.address == "tcp://127.0.0.1:9"
    assert error.value.timeout_s == 0.5


def test_keys_are_written_for_their_owner_and_not_over_others(tmp_path: Path) -> None:
    line = keygen(tmp_path, "me")
    secret = tmp_path / "me.key_secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    keys = CurveKeys.load(secret)
    assert line == f"{keys.public} me\n"
    assert keys.secret not in repr(keys)
    with pytest.raises(subprocess.CalledProcessError):
        keygen(tmp_path, "me")
    assert keygen(tmp_path, "me", "--force") != line
    secret.chmod(0o640)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        CurveKeys.load(secret)
    with pytest.raises(ConfigurationError, match="no secret key"):
        CurveKeys.load(tmp_path / "me.key")


@pytest.mark.parametrize(("text", "words"), [
    ('listen = "127.0.0.1:0"', "there is no TCP without keys"),
    ('listen = "127.0.0.1:0"\nsecret_key = "{0}/no"\nclients = "{0}/allowed"', "no such file"),
    ('listen = "127.0.0.1:0"\nsecret_key = "{0}/daemon.key"\nclients = "{0}/allowed"',
     "no secret key"),
    ('listen = "127.0.0.1:0"\nsecret_key = "{0}/daemon.key_secret"\nclients = "{0}/none"',
     "cannot be read"),
    ('listen = "127.0.0.1:0"\nsecret_key = "{0}/daemon.key_secret"\nclients = "{0}/bad"',
     "no CURVE public key"),
    ('listen = "192.0.2.1:4"\nsecret_key = "{0}/daemon.key_secret"\nclients = "{0}/allowed"',
     "cannot listen on 192.0.2.1:4"),
])
def test_a_wrong_configuration_is_named(
    served: Served, tmp_path: Path, text: str, words: str
) -> None:
    (served.keys / "bad").write_text("not a key\n", encoding="utf-8")
    config = tmp_path / "bad.toml"
    config.write_text("[control_tcp]\n" + text.format(served.keys) + "\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "daemon", "--dir", str(tmp_path / "d"), "--config",
         str(config)], capture_output=True, text=True, timeout=60, check=False,
    )
    assert done.returncode == 2
    assert words in done.stderr


# ---- what is served ------------------------------------------------------------------------------


@contextlib.contextmanager
def dealer(served: Served) -> Iterator[zmq.Socket[bytes]]:
    """A bare socket with a key that is allowed."""
    keys = CurveKeys.load(served.keys / "query.key_secret")
    with zmq.Context() as context, context.socket(zmq.DEALER) as made:
        made.setsockopt(zmq.LINGER, 0)
        made.curve_publickey = keys.public.encode()
        made.curve_secretkey = keys.secret.encode()
        made.curve_serverkey = served.server_key.encode()
        made.connect(served.address)
        yield made


def exchange(socket: zmq.Socket[bytes], frames: list[bytes]) -> control.Message:
    socket.send_multipart(frames)
    assert socket.poll(20_000)
    return codec.decode(socket.recv_multipart()[0])[1]


@pytest.mark.parametrize("request_", [
    control.AddPublication(channel="aeron:ipc", stream_id=1),
    control.AddSubscription(channel="aeron:ipc", stream_id=1),
    control.Hello(token=b"x"),
    control.LeaseRequest(name="x"),
    control.RemovePublication(registration_id=1),
])
def test_what_belongs_to_the_host_is_refused_by_name(
    served: Served, request_: control.Message
) -> None:
    with dealer(served) as socket:
        answer = exchange(socket, [codec.encode(request_, 1)])
        assert isinstance(answer, control.Failure)
        assert answer.code == "permission"
        assert type(request_).__name__ in answer.message
        assert isinstance(exchange(socket, [codec.encode(control.GetStatus(), 2)]), control.Status)


@pytest.mark.parametrize("frames", [
    [b""], [b"\xff" * 100], [b"x", b"y"], [codec.encode(control.ListGroups(), 0)],
    [codec.encode(control.Fetch(log_id=1, session_id=0, initial_term_id=0, start=32, end=0), 1)],
    [codec.encode(control.Fetch(log_id=1, session_id=0, initial_term_id=0, start=1, end=32), 1)],
    [codec.encode(control.CutLog(log_id=1, session_id=0, initial_term_id=0, start=1, max_bytes=9),
                  1)],
])
def test_nonsense_is_answered_as_such(served: Served, frames: list[bytes]) -> None:
    with dealer(served) as socket:
        answer = exchange(socket, frames)
        assert isinstance(answer, control.Failure)
        assert answer.code == "malformed"


def test_logs_that_no_group_holds_are_not_served(served: Served, client: penstock.Client) -> None:
    with client.add_publication("aeron:ipc?term-length=64k", STREAM + 1) as publication, \
            served.control() as control_, pytest.raises(RangeNotRetained) as gone:
        list(control_.fetch(log_id=publication.registration_id, session_id=publication.session_id,
                            initial_term_id=0, start=0, end=32))
    assert gone.value.end_position == 0


def test_a_reader_without_credit_gets_no_more_than_it_requested(
    served: Served, client: penstock.Client
) -> None:
    with served.control() as control_, dealer(served) as socket, \
            client.add_publication("aeron:ipc?term-length=16m", STREAM + 2) as publication:
        group = Group(control_, "aeron:ipc", STREAM + 2)
        eventually(lambda: publication.is_connected, "the group is not a reader")
        for _ in range(6 * 1024):
            assert publication.offer(MESSAGE) > 0
        eventually(lambda: group.log().end_position == publication.position, "no data")
        log = group.log()
        fetch = control.Fetch(
            log_id=log.log_id, session_id=log.session_id, initial_term_id=log.initial_term_id,
            start=0, end=log.end_position, credit=2,
        )
        socket.send(codec.encode(fetch, 7))
        sizes = []
        for _ in range(2):
            assert socket.poll(20_000)
            sizes.append(len(socket.recv_multipart()[1]))
        answer = exchange(socket, [codec.encode(control.GetStatus(), 8)])
        assert isinstance(answer, control.Status)       # and no piece before it
        socket.send(codec.encode(control.FetchCredit(pieces=1), 7))
        assert socket.poll(20_000)
        sizes.append(len(socket.recv_multipart()[1]))
        assert sizes == [control.FETCH_PIECE_BYTES] * 3
        group.acknowledge(log.end_position)
        socket.send(codec.encode(control.FetchCredit(pieces=1), 7))
        assert socket.poll(20_000)
        answer = codec.decode(socket.recv_multipart()[0])[1]
        assert isinstance(answer, control.RangeGone)
        assert answer.lowest == log.end_position
        group.close()


def test_requests_of_one_connection_are_limited_and_the_daemon_goes_on(served: Served) -> None:
    with dealer(served) as socket, served.control() as control_:
        request = control.OpenGroup(
            name="flood", channel="aeron:udp?endpoint=localhost:24001", stream_id=1,
            expiry_ns=EXPIRY_NS,
        )
        codes = set()
        for round_ in range(8):         # of fewer than the answers that wait for a reader
            for n in range(1, 51):
                data = codec.encode(attrs.evolve(request, stream_id=n % 4), 50 * round_ + n)
                socket.send(data)
            for _ in range(50):
                assert socket.poll(30_000)
                answer = codec.decode(socket.recv_multipart()[0])[1]
                codes.add(answer.code if isinstance(answer, control.Failure) else "")
        assert codes <= {"", "limit"}
        for state in control_.groups():
            control_.close_group(name=state.name, channel=state.channel, stream_id=state.stream_id)
        assert control_.groups() == []


def test_a_daemon_ends_while_readers_are_connected(served: Served, tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text(
        f'[control_tcp]\nlisten = "127.0.0.1:0"\nsecret_key = "{served.keys}/daemon.key_secret"\n'
        f'clients = "{served.keys}/allowed"\n', encoding="utf-8",
    )
    with penstock_host(tmp_path / "d", "--config", str(config)) as host, \
            GroupControl(directory=str(host.directory)) as near:
        found = re.search(r"served on (tcp://\S+) with", host.errors())
        assert found is not None
        with attrs.evolve(served, address=found[1]).control() as far:
            assert far.groups() == near.groups() == []
            assert host.end() == 0


def test_a_control_survives_its_daemons_restart(
    served: Served, tmp_path: Path, port: Callable[[], int]
) -> None:
    config = tmp_path / "penstock.toml"
    number = port()
    config.write_text(
        f'[control_tcp]\nlisten = "127.0.0.1:{number}"\n'
        f'secret_key = "{served.keys}/daemon.key_secret"\nclients = "{served.keys}/allowed"\n',
        encoding="utf-8",
    )
    with penstock_host(tmp_path / "d", "--config", str(config)) as host, \
            served.control(timeout_s=60) as control_:
        far = GroupControl(
            address=f"tcp://127.0.0.1:{number}", server_key=served.server_key, timeout_s=60,
            keys=CurveKeys.load(served.keys / "query.key_secret"),
        )
        opened = far.open(name="q", channel="aeron:ipc", stream_id=1, expiry_ns=EXPIRY_NS)
        host.kill()
        host.start("--config", str(config))
        again = far.state(name="q", channel="aeron:ipc", stream_id=1)
        assert (again.group_id, again.daemon_id) == (opened.group_id, opened.daemon_id)
        far.close()
        assert control_.groups() == []


# ---- how many ------------------------------------------------------------------------------------


@pytest.fixture
def two(served: Served, tmp_path: Path) -> Iterator[Served]:
    """A daemon that serves two connections, and lets in whose keys lie in a directory."""
    keys = tmp_path / "clients"
    keys.mkdir()
    for name in ("query", "stranger"):
        shutil.copy(served.keys / f"{name}.key", keys)
    config = tmp_path / "penstock.toml"
    config.write_text(
        f'[control_tcp]\nlisten = "127.0.0.1:0"\nsecret_key = "{served.keys}/daemon.key_secret"\n'
        f'clients = "{keys}"\nconnections = 2\n', encoding="utf-8",
    )
    with penstock_host(tmp_path / "d", "--config", str(config)) as host:
        eventually(lambda: "served on" in host.errors(), "the daemon does not say where it serves")
        found = re.search(r"served on (tcp://\S+) with", host.errors())
        assert found is not None
        yield attrs.evolve(served, host=host, address=found[1])


def raw(served: Served) -> socket.socket:
    """A TCP connection that shows no key."""
    port = int(served.address.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def ended(connection: socket.socket) -> bool:
    """By the other side."""
    checking = select.poll()
    checking.register(connection, select.POLLRDHUP)
    return bool(checking.poll(0))


def test_connections_that_end_in_the_handshake_make_no_places(two: Served) -> None:
    with two.control() as one, two.control() as other, two.control(timeout_s=4) as third:
        assert one.groups() == other.groups() == []
        for _ in range(5):
            raw(two).close()
        with pytest.raises(NotAuthorised):
            third.groups()
        assert one.groups() == []
        one.close()
        eventually(lambda: _comes_in(two), "the place is not free again")


def _comes_in(served: Served) -> bool:
    with served.control(timeout_s=4) as control_, contextlib.suppress(NotAuthorised):
        return control_.groups() == []
    return False


class Caller:
    """A bare socket with an allowed key, and what its handshake came to."""

    def __init__(self, served: Served, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        keys = CurveKeys.load(served.keys / "query.key_secret")
        self.socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 1000)
        self.socket.curve_publickey = keys.public.encode()
        self.socket.curve_secretkey = keys.secret.encode()
        self.socket.curve_serverkey = served.server_key.encode()
        self._monitor = self.socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
        )
        self._verdict: int | None = None
        self.socket.connect(served.address)

    def verdict(self) -> int | None:
        """The first: the daemon let it in, or refused its key.  A connection that the daemon ended
        because its handshake took too long is tried again, and has none yet."""
        if self._verdict is None and self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)
            self._verdict = int(event["event"])
        return self._verdict

    def close(self) -> None:
        self.socket.disable_monitor()
        self._monitor.close(0)
        self.socket.close(0)


def test_of_many_that_come_at_once_as_many_get_in_as_there_are_places(two: Served) -> None:
    request = codec.encode(control.ListGroups(), 1)
    with zmq.Context() as context, contextlib.ExitStack() as stack:
        callers = [Caller(two, context) for _ in range(8)]
        for caller in callers:
            stack.callback(caller.close)
            caller.socket.send(request)
        eventually(
            lambda: all(caller.verdict() is not None for caller in callers), "some have no verdict"
        )
        let_in = [c for c in callers if c.verdict() == zmq.EVENT_HANDSHAKE_SUCCEEDED]
        assert len(let_in) == 2
        for caller in let_in:
            eventually(lambda c=caller: bool(c.socket.poll(0)), "no answer")  # type: ignore[misc]
        assert not any(c.socket.poll(0) for c in callers if c not in let_in)


def test_whoever_shows_no_key_makes_room(two: Served) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(raw(two)) for _ in range(STRANGERS + 20)]
        with two.control() as control_:
            assert control_.groups() == []          # within the 5 s that each of them has
        eventually(lambda: all(map(ended, silent[:20])), "the oldest stay")
        assert not ended(silent[-1])


# ---- the list ------------------------------------------------------------------------------------


def test_a_key_file_that_cannot_be_read_keeps_only_its_own_key_out(
    two: Served, tmp_path: Path
) -> None:
    keys = tmp_path / "clients"
    with two.control() as query, two.control("stranger") as other:
        assert query.groups() == other.groups() == []
        (keys / "broken.key").symlink_to(tmp_path / "nowhere")      # nor can root read it
        (keys / "stranger.key").unlink()
        with pytest.raises(GroupRefused, match="allow-list"):
            other.groups()                          # though the list as a whole cannot be read
        assert query.groups() == []
        assert "broken.key: cannot read the key file" in two.host.errors()
        (keys / "broken.key").unlink()
        shutil.copy(two.keys / "stranger.key", keys / "broken.key")
        assert other.groups() == []
