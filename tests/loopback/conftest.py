# SPDX-License-Identifier: Apache-2.0
"""Daemons for the loopback tests.

``host`` and ``peer`` are two daemons that live as long as the test module, as two hosts would; a
test that harms its daemon makes its own with ``new_host``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import wheels
from support.hosts import PenstockHost, memory_directory, penstock_host

import penstock

NewHost = Callable[..., PenstockHost]


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="penstock-test-", dir=memory_directory()))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _host(*args: str) -> Iterator[PenstockHost]:
    with _directory() as parent, penstock_host(parent / "penstock", *args) as made:
        yield made


@pytest.fixture(scope="module")
def host() -> Iterator[PenstockHost]:
    """A daemon of the module."""
    with _host() as made:
        yield made


@pytest.fixture(scope="module")
def peer() -> Iterator[PenstockHost]:
    """A second daemon of the module."""
    with _host() as made:
        yield made


@pytest.fixture
def new_host() -> Iterator[NewHost]:
    """Starts further daemons, with arguments, for one test."""
    with contextlib.ExitStack() as stack:
        yield lambda *args: stack.enter_context(_host(*args))


@pytest.fixture
def client(host: PenstockHost) -> Iterator[penstock.Client]:
    """A client of ``host``."""
    with penstock.connect(host.directory, name="test") as made:
        yield made


@pytest.fixture
def remote(peer: PenstockHost) -> Iterator[penstock.Client]:
    """A client of ``peer``."""
    with penstock.connect(peer.directory, name="remote") as made:
        yield made


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the wheels of a release."""
    return wheels.build(tmp_path_factory.mktemp("release"))


_PORTS = itertools.count(21_000 + os.getpid() % 4000 * 8)


@pytest.fixture
def port() -> Callable[[], int]:
    """Ports that no socket has, neither of UDP nor of TCP."""

    def free() -> int:
        for candidate in _PORTS:
            found = 20_000 + candidate % 40_000
            with (
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
                socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connections,
            ):
                try:
                    datagrams.bind(("127.0.0.1", found))
                    connections.bind(("127.0.0.1", found))
                except OSError:
                    continue
                return found
        raise AssertionError("unreachable")

    return free
