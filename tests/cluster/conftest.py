# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the cluster tests."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.hosts import PenstockHost, memory_directory, penstock_host
from support.not_run import need_command, need_java, need_root

from cluster.network import Network, network
from cluster.spark_cluster import Driver, Drivers, SparkCluster, spark_cluster


@pytest.fixture(scope="session")
def lan() -> Iterator[Network]:
    """Four hosts on a bridge."""
    need_root("network namespaces")
    need_command("ip", "iproute2")
    with network() as made:
        yield made


@pytest.fixture
def start(lan: Network) -> Iterator[Callable[..., PenstockHost]]:
    """Starts a new daemon on a host: ``start(0, "--impair", ...)``."""
    numbers = itertools.count()
    parent = Path(tempfile.mkdtemp(prefix="penstock-cluster-", dir=memory_directory()))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, parent)

        def begin(host: int, *args: str) -> PenstockHost:
            folder = parent / f"{host}-{next(numbers)}"     # nobody adopts what another left
            return stack.enter_context(penstock_host(folder, *args, prefix=lan.prefix(host)))

        yield begin


@pytest.fixture(scope="session")
def spark(lan: Network) -> Iterator[SparkCluster]:
    """A master, two workers and three daemons, for all tests of the session."""
    need_java()
    folder = Path(tempfile.mkdtemp(prefix="penstock-spark-", dir=memory_directory()))
    try:
        with spark_cluster(lan, folder) as made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def drivers(spark: SparkCluster) -> Iterator[Drivers]:
    """One at a time, for all tests of the session; whoever kills it makes the new daemon."""
    with Drivers(spark) as made:
        yield made


@pytest.fixture
def driver(drivers: Drivers) -> Driver:
    """The driver of the session."""
    return drivers.current
