# SPDX-License-Identifier: Apache-2.0
"""Receive buffers of sockets follow the receiver window; a daemon that cannot have them says so.

The receiving daemon is stopped by a signal while its sender sends a window, so that all of it waits
in the socket's buffer.  What the kernel drops and what the receiver requests again are counted."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.hosts import PenstockHost, memory_directory, penstock_host

import penstock
from loopback.conftest import NewHost
from loopback.streams import connected, eventually, pump, receive
from penstock import Client, Publication, Subscription
from penstock.cli._stat_view import render
from penstock.cli._tables import console
from penstock.cli.stat import snapshot

Port = Callable[[], int]
KIB, MIB = 1 << 10, 1 << 20
STREAM, MTU, SIZE = 1001, 1408, 1300
CAP_NET_ADMIN = 12
NAKS_SENT, INVALID_PACKETS = 5, 14
GRANTED = int(Path("/proc/sys/net/core/rmem_max").read_text())


def is_privileged() -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next(line.split()[1] for line in lines if line.startswith("CapEff"))
    return bool(int(effective, 16) >> CAP_NET_ADMIN & 1)


WINDOWS = [window for window in (64 * KIB, 200 * KIB, MIB, 8 * MIB)
           if is_privileged() or window <= GRANTED]


@contextlib.contextmanager
def plain_host() -> Iterator[PenstockHost]:
    """A host whose daemon may not exceed net.core.rmem_max."""
    drop = ("setpriv", "--inh-caps=-net_admin", "--bounding-set=-net_admin")
    with (
        tempfile.TemporaryDirectory(prefix="penstock-test-", dir=memory_directory()) as folder,
        penstock_host(Path(folder) / "penstock", prefix=drop if is_privileged() else ()) as host,
    ):
        yield host


def term_of(window: int) -> int:
    """Twice as large as the window needs: padding at a term's end may pass the window by less."""
    return max(64 * KIB, 1 << (4 * window - 1).bit_length())


@contextlib.contextmanager
def stream(
    near: PenstockHost, far: PenstockHost, port: int, window: int, more: str = ""
) -> Iterator[tuple[Client, Client, Publication, Subscription]]:
    channel = f"aeron:udp?endpoint=127.0.0.1:{port}"
    with (
        penstock.connect(near.directory) as client,
        penstock.connect(far.directory) as remote,
        remote.add_subscription(f"{channel}|rcv-wnd={window}{more}", STREAM) as subscription,
        client.add_publication(f"{channel}|term-length={term_of(window)}", STREAM) as publication,
    ):
        connected(publication, subscription)
        yield client, remote, publication, subscription


def image(host: PenstockHost) -> dict[str, Any]:
    row: dict[str, Any] = snapshot(host.directory)["status"]["images"][0]
    return row


def sent(host: PenstockHost) -> int:
    position: int = snapshot(host.directory)["status"]["publications"][0]["consumer_position"]
    return position


def dropped(port: int) -> int:
    """Datagrams that the kernel dropped at a socket because its buffer was full."""
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    return sum(int(row[-1]) for row in rows if int(row[1].split(":")[1], 16) == port)


def counted(host: PenstockHost, counter_id: int) -> int:
    return sum(row["value"] for row in snapshot(host.directory)["counters"]
               if row["id"] == counter_id)


def warm_up(publication: Publication, subscription: Subscription, window: int) -> None:
    """Past the first term, so that the receiver has storage for the whole window and states it."""
    size = 7 * KIB
    large = [bytes(size)] * (term_of(window) // size + 1)
    assert len(pump(publication, large, [subscription])[0]) == len(large)


def limit(host: PenstockHost) -> int:
    """Up to where the receiver lets the sender send, by its last status message."""
    peer = snapshot(host.directory)["status"]["publications"][0]["peers"][0]
    at: int = peer["position"] + peer["window"]
    return at


def send_a_window(near: PenstockHost, far: PenstockHost, publication: Publication, window: int,
                  ) -> int:
    """Publishes until the sender has used its window up, while the receiver stands still."""
    count, begin = 0, publication.position
    eventually(lambda: limit(near) > begin + window // 2, "the receiver grants a window")
    os.kill(far.pid, signal.SIGSTOP)
    try:
        end = limit(near)
        while publication.position < end:
            code = publication.offer(b"%08d" % count + bytes(SIZE - 8))
            count += code > 0
        eventually(lambda: sent(near) >= end - 2 * MTU, "a window leaves")
    finally:
        os.kill(far.pid, signal.SIGCONT)
    return count


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_fits_into_the_socket(new_host: NewHost, port: Port, window: int) -> None:
    near, far, there = new_host(), new_host(), port()
    with stream(near, far, there, window) as (_, _remote, publication, subscription):
        warm_up(publication, subscription, window)
        count = send_a_window(near, far, publication, window)
        got = receive(subscription, count)
        assert [int(message[:8]) for message in got] == list(range(count))
        assert dropped(there) == 0
        assert (counted(far, NAKS_SENT), counted(far, INVALID_PACKETS)) == (0, 0)
        row = image(far)
        assert row["window_bytes"] == window
        assert row["rcvbuf_bytes"] >= min(row["rcvbuf_wanted_bytes"], GRANTED)
    assert "receive buffer" not in far.errors()


def shown(host: PenstockHost, width: int) -> str:
    screen = console()
    with screen.capture() as capture:
        screen.print(render(snapshot(host.directory), None, 1.0, False, width=width), width=width)
    return capture.get()


def test_a_daemon_without_the_privilege_says_what_it_wants(new_host: NewHost, port: Port) -> None:
    near, window = new_host(), 2 * GRANTED
    with plain_host() as far:
        with stream(near, far, port(), window) as (client, remote, publication, subscription):
            row = image(far)
            wanted = 2 * window
            assert (row["rcvbuf_bytes"], row["rcvbuf_wanted_bytes"]) == (GRANTED, wanted)
            for width in (80, 200):
                assert "buffer short" in " ".join(shown(far, width).split())
            second = client.add_exclusive_publication(publication.channel, STREAM)
            with second, remote.add_subscription(subscription.channel, STREAM) as other:
                connected(second, other)
            warm_up(publication, subscription, window)
            count = send_a_window(near, far, publication, window)
            assert len(receive(subscription, count)) == count     # what is lost is sent again
        said = [line for line in far.errors().splitlines() if "receive buffer" in line]
        assert len(said) == 1, said
        for part in (str(window), str(GRANTED), f"net.core.rmem_max={wanted}"):
            assert part in said[0]


def test_what_a_channel_states_is_kept(new_host: NewHost, port: Port) -> None:
    near, far, window = new_host(), new_host(), MIB
    stated = min(128 * KIB, GRANTED)
    with stream(near, far, port(), window, f"|so-rcvbuf={stated}"):
        assert image(far)["rcvbuf_bytes"] == stated
        eventually(lambda: "so-rcvbuf" in far.errors(), "one line")
        assert f"raise so-rcvbuf to {2 * window}" in far.errors()


def test_a_new_daemon_enlarges_the_buffer_again(new_host: NewHost, port: Port) -> None:
    window = WINDOWS[-1]
    near, far, there = new_host(), new_host(), port()
    with stream(near, far, there, window) as (_, _remote, publication, subscription):
        before = image(far)["rcvbuf_bytes"]
        assert far.end() == 0
        far.start()
        publication.send(b"after", 60)
        receive(subscription, 1)
        assert image(far)["rcvbuf_bytes"] == before >= min(2 * window, GRANTED)
