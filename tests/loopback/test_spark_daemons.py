# SPDX-License-Identifier: Apache-2.0
"""A query's process beside the driver, and several daemons that it speaks to over TCP."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import attrs
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType
from support.hosts import PenstockHost, penstock_host

from loopback.streams import eventually
from loopback.test_remote_control import keygen
from penstock.client import GroupControl
from penstock.core.errors import InvalidArgument, PenstockError
from penstock.spark_bridge import _subscription
from penstock.spark_bridge._options import read_options
from penstock.spark_bridge._outlet import outlet
from penstock.spark_bridge._sink import batch_writer
from penstock.spark_bridge._source import BatchReader, DefaultSource, Planning, StreamReader

EXPIRY_S = 2


@attrs.frozen(kw_only=True)
class Daemon:
    host: PenstockHost
    address: str
    key: str


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[list[Daemon]]:
    """Two that let the same client in."""
    allowed = tmp_path / "allowed"
    allowed.write_text(keygen(tmp_path, "query"), encoding="utf-8")
    found = []
    with penstock_host_of(tmp_path, "one") as one, penstock_host_of(tmp_path, "two") as two:
        for host in (one, two):
            eventually(lambda host=host: "served on" in host.errors(), "it serves nobody")
            notified = re.search(r"served on (tcp://\S+) with the key (\S+)", host.errors())
            assert notified is not None
            found.append(Daemon(host=host, address=notified[1], key=notified[2]))
        yield found


def penstock_host_of(folder: Path, name: str) -> contextlib.AbstractContextManager[PenstockHost]:
    keygen(folder, name)
    config = folder / f"{name}.toml"
    config.write_text(
        f'[control_tcp]\nlisten = "127.0.0.1:0"\nsecret_key = "{folder}/{name}.key_secret"\n'
        f'clients = "{folder}/allowed"\n', encoding="utf-8",
    )
    return penstock_host(folder / f"penstock-{name}", "--config", str(config))


def _deadline_ns(control: GroupControl) -> int:
    """When the group expires unless something is heard; this only looks."""
    (group,) = control.groups()
    assert group.name == "kept"
    return time.monotonic_ns() + group.expires_ns


@pytest.mark.parametrize("slow", [0, 1])
def test_a_daemon_that_does_not_answer_lets_no_group_of_another_one_expire(
    daemons: list[Daemon], tmp_path: Path, slow: int
) -> None:
    planning = Planning(read_options({
        "channel": "aeron:ipc", "streamId": "1001", "subscription": "kept",
        "groupExpiry": f"{EXPIRY_S}s", "keyFile": str(tmp_path / "query.key_secret"),
        "control": ",".join(daemon.address for daemon in daemons),
        "serverKeys": json.dumps({daemon.address: daemon.key for daemon in daemons}),
    }))
    stopped, other = daemons[slow], daemons[1 - slow]
    try:
        planning.initial()
        os.kill(stopped.host.pid, signal.SIGSTOP)
        with GroupControl(directory=str(other.host.directory)) as control:
            enough_ns = _deadline_ns(control) + int(2.5 * EXPIRY_S * 1e9)
            eventually(lambda: _deadline_ns(control) > enough_ns, "its deadline stands still")
    finally:
        os.kill(stopped.host.pid, signal.SIGCONT)
        planning.stop()


@pytest.mark.parametrize("away", ["directory", "socket", "file", "address"])
def test_no_daemon_is_named_at_once_although_the_user_gives_the_schema(
    tmp_path: Path, away: str
) -> None:
    """Spark asks the source for its schema only if the user gives none. The option retry, after
    which the query would end in any case, is for daemons that were there."""
    options = {"channel": "aeron:ipc", "streamId": "1", "subscription": "none", "retry": "6s"}
    if away != "address":
        options |= {"daemonDir": str(tmp_path / "none")}
        said = f"option daemonDir: no daemon in {tmp_path}"
        if away == "file":
            (tmp_path / "none").touch()
        elif away == "socket":              # which a killed daemon leaves behind
            (tmp_path / "none").mkdir()
            with socket.socket(socket.AF_UNIX) as left:
                left.bind(str(tmp_path / "none" / "groups.sock"))
            said += ".*refused"
    else:
        key = keygen(tmp_path, "query").split()[0]
        options |= {"control": "tcp://127.0.0.1:1", "serverKey": key,
                    "keyFile": str(tmp_path / "query.key_secret")}
        said = "option control=tcp://127.0.0.1:1: no daemon answers: .*refused"
    reader = StreamReader(read_options(options), StructType())
    batch = BatchReader(read_options(options, streaming=False), StructType())
    try:
        for call in (reader.initialOffset, lambda: reader.latestOffset({}, ReadAllAvailable()),
                     batch.partitions):
            with pytest.raises(InvalidArgument, match=said):
                call()
    finally:
        reader.stop()


def test_load_sends_no_request_where_no_daemon_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request would wait for its own time limit of five seconds."""
    def requested(*_arguments: object, **_more: object) -> NoReturn:
        raise AssertionError("a request was sent")

    monkeypatch.setattr(_subscription, "control_of", requested)
    source = DefaultSource({
        "channel": "aeron:ipc", "streamId": "1", "subscription": "none",
        "daemonDir": str(tmp_path / "none"),
    })
    with pytest.raises(InvalidArgument, match=f"option daemonDir: no daemon in {tmp_path}"):
        source.schema()


@contextlib.contextmanager
def without_permission(directory: Path) -> Iterator[None]:
    """The block runs as a user who may not enter the directory; root may enter any."""
    directory.mkdir(mode=0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        directory.chmod(0o700)


def test_a_directory_without_permission_is_named_at_once_with_its_owner(tmp_path: Path) -> None:
    """No daemon that starts later helps, so that neither retry nor timeout is waited for."""
    options = {"channel": "aeron:ipc", "streamId": "1", "daemonDir": str(tmp_path / "closed")}
    reading = read_options(options | {"subscription": "none", "retry": "3600s"})
    rows = StructType().add("value", "string")
    with without_permission(tmp_path / "closed"):
        for call in (
            StreamReader(reading, StructType()).initialOffset,
            lambda: batch_writer(options, rows, overwrite=False),
            lambda: outlet(options["daemonDir"], 3600.0),
        ):
            with pytest.raises(PenstockError, match="option daemonDir: this user may not reach"):
                call()
