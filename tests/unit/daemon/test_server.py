# SPDX-License-Identifier: Apache-2.0
"""The daemon's shell, in the process of the test."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

import penstock
from penstock.config.settings.models import DaemonConfig, DirectoryConfig
from penstock.daemon.run import run_daemon

BEFORE_READY = 3                        # in the facts, in cnc.dat and in the announcement


def test_a_lease_is_granted_without_a_check_of_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is a file of the installation: it is read before the daemon serves anybody."""
    path = tmp_path / "d"
    requested: list[str] = []
    ready = trio.Event()

    def version() -> str:
        requested.append("version")
        if len(requested) == BEFORE_READY:
            ready.set()
        return "0.1.0"

    def use() -> None:
        with penstock.connect(path) as client:
            client.add_publication("aeron:ipc?term-length=64k", 1).close()

    async def serve() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run_daemon, DaemonConfig(directory=DirectoryConfig(
                    path=str(path)
                )))
                await ready.wait()
                await trio.to_thread.run_sync(use)
                nursery.cancel_scope.cancel()

    monkeypatch.setattr("penstock.daemon.server.version", version)
    trio.run(serve)
    assert len(requested) == BEFORE_READY
