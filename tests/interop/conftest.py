# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the interoperability tests."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.hosts import memory_directory
from support.not_run import not_run
from support.own_network import machine_network

from interop import aeron, aeron_c


@pytest.fixture(scope="session")
def aeron_built() -> None:
    """Builds the Java side; without it the tests are not run, and CI fails."""
    try:
        with machine_network():
            aeron.build()
    except aeron.NotBuiltError as error:
        not_run(f"interoperability with the real Aeron: {error}")


@pytest.fixture(scope="session")
def aeron_c_built() -> None:
    """Builds Aeron's C driver; without it the tests are not run, and CI fails."""
    try:
        with machine_network():
            aeron_c.build()
    except aeron.NotBuiltError as error:
        not_run(f"interoperability with Aeron's C driver: {error}")


@pytest.fixture
def directories() -> Iterator[Callable[[str], Path]]:
    """Names for driver directories in shared memory; all are gone after the test."""
    parent = Path(tempfile.mkdtemp(prefix="penstock-interop-", dir=memory_directory()))
    try:
        yield lambda name: parent / name
    finally:
        shutil.rmtree(parent)


@pytest.fixture
def ports() -> Callable[[], int]:
    """Free UDP ports: an even one, whose successor is free too."""
    candidates = itertools.count(20_000 + os.getpid() % 5000 * 2, 2)

    def free() -> int:
        for port in candidates:
            try:
                for number in (port, port + 1):
                    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                        probe.bind(("127.0.0.1", number))
            except OSError:
                continue
            return port
        raise AssertionError("unreachable")

    return free
