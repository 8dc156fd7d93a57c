# SPDX-License-Identifier: Apache-2.0
"""The compiled cores: what is in each, and that objects of one do not get into another."""

from __future__ import annotations

import io
import re
import runpy
import subprocess
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock import _core, _core_bench, _core_sim
from penstock.core import client as core
from penstock.core._lib import CORE
from penstock.core.admin import Cnc, Shared
from penstock.core.driver import Driver, Net
from penstock.core.driver_types import CncParams, DriverParams, SharedParams, SlotKind, Threading
from penstock.core.errors import InvalidArgument
from penstock.core.library import Library
from penstock.sim.core import SIM, SimNetwork, SimWorld

ROOT = Path(__file__).parents[2]
MOST_TEXT_BYTES = 462_000
MOST_THREAD_BYTES = 4096
# The layers were to add 300 KiB to the wheel at most (931,623 bytes before them, at 2aeff0c), and
# added 204 KiB.  What later capabilities add is bounded by what a user downloads.
MOST_WHEEL_BYTES = 3_000_000
METADATA_BYTES = 24 * 1024
OF_THE_SIMULATOR = re.compile(r"ps_sim|ps_probe|net_sim|simnet|simworld|_core_sim")


def symbols(module: ModuleType) -> dict[str, str]:
    """Kinds of the symbols that the extension defines, by name."""
    listed = subprocess.run(
        ["nm", "--defined-only", str(module.__file__)], check=True, capture_output=True, text=True
    ).stdout
    lines = map(str.split, listed.splitlines())
    return {fields[2]: fields[1] for fields in lines if len(fields) == 3}


def functions(module: ModuleType) -> set[str]:
    return {name for name, kind in symbols(module).items() if kind in "tT" and "." not in name}


def sources(builder: Any) -> list[str]:
    """The files a builder compiles."""
    return list(builder._assigned_source[-1]["sources"])


@pytest.fixture(scope="module")
def build() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "core/build_core.py"))


def test_the_simulator_links_the_files_of_the_product_and_its_own(build: dict[str, Any]) -> None:
    product, simulator = sources(build["ffibuilder"]), sources(build["sim_ffibuilder"])
    assert simulator[: len(product)] == product
    assert all(path.startswith("core/src/") for path in product)
    assert all(path.startswith("sim/native/") for path in simulator[len(product) :])
    native = {str(path.relative_to(ROOT)) for path in (ROOT / "sim/native").rglob("*.c")}
    assert set(simulator[len(product) :]) == native


def test_the_simulator_has_every_function_of_the_product() -> None:
    made_by_cffi = re.compile(r"_cffi_|PyInit_")
    missing = {
        name for name in functions(_core) - functions(_core_sim) if not made_by_cffi.match(name)
    }
    assert missing == set()


def test_the_product_carries_nothing_of_the_simulator() -> None:
    assert [name for name in symbols(_core) if OF_THE_SIMULATOR.search(name)] == []
    assert [name for name in symbols(_core) if name.startswith("ps_bench")] == []


def test_the_load_loops_carry_no_core() -> None:
    own = {name for name in functions(_core_bench) if name.startswith("ps_")}
    assert own
    assert {name for name in own if not name.startswith("ps_bench_")} == set()


def test_the_product_is_small() -> None:
    path = str(_core.__file__)
    size = subprocess.run(["size", path], check=True, capture_output=True, text=True).stdout
    assert int(size.splitlines()[1].split()[0]) <= MOST_TEXT_BYTES
    segments = subprocess.run(
        ["readelf", "--segments", "--wide", path], check=True, capture_output=True, text=True
    ).stdout
    found = [line.split() for line in segments.splitlines() if line.split()[:1] == ["TLS"]]
    assert all(int(fields[5], 16) <= MOST_THREAD_BYTES for fields in found)


def test_the_wheel_is_small() -> None:
    """The files that a wheel holds, compressed as in one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    held = project["tool"]["setuptools"]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path in sorted((ROOT / "penstock").glob("*.so")):
            wheel.write(path, path.name)
        for package in held["packages"]:
            top = max(
                (name for name in held["package-dir"] if f"{package}.".startswith(f"{name}.")),
                key=len,
            )
            inner = package.removeprefix(top).replace(".", "/").strip("/")
            folder = ROOT / held["package-dir"][top] / inner
            for pattern in ("*.py", *held["package-data"].get(package, ())):
                for path in sorted(folder.glob(pattern)):
                    wheel.write(path, f"{package}/{path.name}")
    assert len(out.getvalue()) + METADATA_BYTES <= MOST_WHEEL_BYTES


def test_nothing_in_the_core_names_the_simulator() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for pattern in ("*.c", "*.h", "*.py") for path in sorted((ROOT / "core").rglob(pattern))
        if path.name not in ("build_core.py", "_core.c", "_core_sim.c", "_core_bench.c")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if OF_THE_SIMULATOR.search(line) and "``penstock._core_sim``" not in line
    ]
    assert wrong == []


# ---- handles -------------------------------------------------------------------------------------


class Files:
    """The files of a daemon directory, made by one library."""

    def __init__(self, directory: Path, library: Library) -> None:
        directory.mkdir()
        self.cnc = Cnc.create(
            CncParams(
                directory=str(directory), client_liveness_timeout_ns=10**10, start_ms=1, pid=1,
                counter_values_bytes=2**20, error_log_bytes=2**16, file_mode=0o600,
                software_version=1,
            ),
            library=library,
        )
        self.shared = Shared.create(
            SharedParams(
                directory=str(directory), clients=1, publications=64, images=1, subscribers=1,
                groups=1, file_mode=0o600, daemon_id=1, daemon_epoch=1, receiver_id_base=1, pid=1,
                start_ms=1,
            ),
            library=library,
        )
        self.slot = self.shared.allocate_slot(SlotKind.CLIENT, 7)
        self.client = core.client_open(
            core.ClientParams(
                directory=str(directory), client_id=7, client_slot=self.slot, sender_wake_fd=-1,
                receiver_wake_fd=-1,
            ),
            library,
        )

    def close(self) -> None:
        del self.client
        self.shared.close()
        self.cnc.close()


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Files]:
    files = Files(tmp_path / "product", CORE)
    yield files
    files.close()


@pytest.fixture
def simulated(tmp_path: Path) -> Iterator[Files]:
    files = Files(tmp_path / "simulated", SIM)
    yield files
    files.close()


def test_a_driver_takes_files_and_network_of_one_library(
    product: Files, simulated: Files
) -> None:
    net = Net.udp()
    params = DriverParams(
        threading=Threading.INVOKER, seed=1, receiver_id_base=1, daemon_id=1, daemon_epoch=1
    )
    with pytest.raises(InvalidArgument, match=r"shared belongs to penstock\._core_sim, not to"):
        Driver(params, net=net, cnc=product.cnc, shared=simulated.shared)
    with pytest.raises(InvalidArgument, match=r"net belongs to penstock\._core, not to"):
        Driver(params, net=net, cnc=simulated.cnc, shared=simulated.shared)
    net.free()


def test_a_world_takes_only_its_own_clients(product: Files) -> None:
    network = SimNetwork(1)
    world = SimWorld(network)
    subscription = core.sub_open(product.client, 1, 1001)
    with pytest.raises(InvalidArgument, match=r"subscription belongs to penstock\._core, not to"):
        world.add_subscriber(subscription, host=0, stream_id=1, poll_limit=1, poll_interval_ns=1)
    world.close()
    network.close()


def test_the_fast_path_takes_only_handles_of_the_product(simulated: Files) -> None:
    with pytest.raises(InvalidArgument, match=r"handle belongs to penstock\._core_sim, not to"):
        core.address_of(simulated.client)


def test_a_handle_calls_the_library_that_made_it(product: Files, simulated: Files) -> None:
    for files, library in ((product, CORE), (simulated, SIM)):
        assert files.client.library is library
        assert core.client_counter_count(files.client) == files.cnc.counter_capacity()
        with pytest.raises(OSError, match="directory"):
            core.client_open(
                core.ClientParams(
                    directory="no/such/directory", client_id=1, client_slot=0, sender_wake_fd=-1,
                    receiver_wake_fd=-1,
                ),
                library,
            )
