# SPDX-License-Identifier: Apache-2.0
"""The commands of the compose file run on two hosts; no container runtime takes part.

``docs/releasing.md`` states how the image was tried by hand."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.hosts import memory_directory

from cluster.network import Network

pytestmark = pytest.mark.needs_root

DEPLOY = Path(__file__).parents[2] / "deploy"
SERVICES: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]


def kill(service: subprocess.Popen[str]) -> None:
    """Kill the processes of a service."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(service.pid, signal.SIGKILL)


def run(service: subprocess.Popen[str]) -> None:
    """Wait for a service.  A container ends with its first process."""
    service.wait(120)
    kill(service)


@pytest.mark.parametrize(("impairment", "count"), [
    pytest.param("loss=5%,delay=5ms", "100k", id="as written"),
    pytest.param("loss=20%,delay=40ms", "3k", id="the last messages are lost"),
])
def test_both_services_print_the_same_hash(lan: Network, impairment: str, count: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    running = []
    with tempfile.TemporaryDirectory(prefix="penstock-compose-", dir=memory_directory()) as place:
        for host, (name, service) in enumerate(SERVICES.items()):
            assert service["networks"]["hosts"]["ipv4_address"] == lan.address(host)
            (command,) = service["command"]
            assert "loss=5%,delay=5ms" in command
            command = command.replace("loss=5%,delay=5ms", impairment).replace("100k", count)
            running.append(subprocess.Popen(
                [*lan.prefix(host), *service["entrypoint"], command],
                env={**os.environ, "PATH": path, "PENSTOCK_DIR": f"{place}/{name}"}, text=True,
                stdout=subprocess.PIPE, start_new_session=True,
            ))
        try:
            with ThreadPoolExecutor(len(running)) as pool:
                list(pool.map(run, running))
        finally:
            for process in running:
                kill(process)
        assert [process.returncode for process in running] == [0, 0]
        printed = [process.communicate(timeout=60)[0].split() for process in running]
    hashes = [{word for word in words if len(word) == 64} for words in printed]
    assert len(hashes[0]) == 1
    assert hashes[0] == hashes[1]


def test_the_context_of_the_recipe_has_the_wheels_and_nothing_else() -> None:
    recipe = (DEPLOY / "Containerfile").read_text("utf-8")
    (copied,) = re.findall(r"^COPY (\S+) ", recipe, re.M)
    lines = (DEPLOY.parent / ".dockerignore").read_text("utf-8").splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["*", f"!{copied}"]


def test_the_recipe_installs_this_version() -> None:
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"penstock=={project['version']} " in (DEPLOY / "Containerfile").read_text("utf-8")
