# SPDX-License-Identifier: Apache-2.0
"""The daemon's directory: claiming, refusing, cleaning."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.config.settings.models import DirectoryConfig
from penstock.core.errors import ConfigurationError, DirectoryInUseError, VersionMismatch
from penstock.daemon.directory import claim_directory


def config(path: Path, **options: object) -> DirectoryConfig:
    return DirectoryConfig(path=str(path), **options)  # type: ignore[arg-type]


def test_a_new_directory_is_made_with_its_mode_and_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er"
    claimed = claim_directory(config(path, mode=0o750))
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert (path / "publications").is_dir()
    (path / "publications" / "1.logbuffer").write_bytes(b"x")
    (path / "cnc.dat").write_bytes(b"x")
    claimed.release()
    assert not path.exists()


def test_a_directory_that_was_there_stays_and_is_empty(tmp_path: Path) -> None:
    claim_directory(config(tmp_path)).release()
    assert list(tmp_path.iterdir()) == []


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "d"
    claimed = claim_directory(config(path))
    with pytest.raises(DirectoryInUseError, match=f"pid {os.getpid()}"):
        claim_directory(config(path))
    claimed.release()
    claim_directory(config(path)).release()


def test_what_a_dead_owner_left_is_wiped(tmp_path: Path) -> None:
    path = tmp_path / "d"
    dead = claim_directory(config(path))
    (path / "images" / "7.logbuffer").write_bytes(b"x")
    (path / "cnc.dat").write_bytes(b"x")
    os.close(dead._lock_fd)
    new_daemon = claim_directory(config(path))
    assert not (path / "images" / "7.logbuffer").exists()
    assert not (path / "cnc.dat").exists()
    new_daemon.release()
    assert not path.exists()            # a daemon had made it


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cnc.dat").write_bytes(b"of an Aeron driver")
    with pytest.raises(VersionMismatch, match=r"cnc\.dat"):
        claim_directory(config(tmp_path))
    assert (tmp_path / "cnc.dat").exists()


def test_another_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "daemon.lock").write_text("penstock 99\n1\nmade\n")
    with pytest.raises(VersionMismatch, match="penstock 99"):
        claim_directory(config(tmp_path))


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(VersionMismatch):
        claim_directory(config(path))


def test_a_group_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no-such-group"):
        claim_directory(config(tmp_path / "d", group="no-such-group"))
    assert not (tmp_path / "d").exists()
