# SPDX-License-Identifier: Apache-2.0
"""The service files, as systemd itself judges them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.not_run import need_command

from penstock.daemon.conductor.sagas.recv_buffers import wanted_bytes

SYSTEMD = Path(__file__).parents[3] / "systemd"
MAX_EXPOSURE = 2.0


@pytest.fixture(autouse=True)
def systemd() -> None:
    need_command("systemd-analyze", "systemd")


def run(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False,
        env={"SYSTEMD_COLORS": "0", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that exists on this machine, which verify insists on."""
    text = (SYSTEMD / "penstock.service").read_text(encoding="utf-8")
    found = re.subn(r"^ExecStart=/usr/bin/penstock ", f"ExecStart={sys.executable} ", text,
                    flags=re.MULTILINE)
    assert found[1] == 1
    path = tmp_path / "penstock.service"
    path.write_text(found[0], encoding="utf-8")
    return path


def test_the_unit_is_clean(unit: Path) -> None:
    assert run("systemd-analyze", "verify", str(unit)) == ""


def test_the_sandbox_is_tight(unit: Path) -> None:
    report = run("systemd-analyze", "security", "--offline=true", "--no-pager", str(unit))
    match = re.search(r"Overall exposure level for \S+: ([0-9.]+)", report)
    assert match is not None, report
    assert float(match[1]) <= MAX_EXPOSURE, report


def test_the_command_is_one_the_program_has() -> None:
    text = (SYSTEMD / "penstock.service").read_text(encoding="utf-8")
    match = re.search(r"^ExecStart=/usr/bin/penstock (.*)$", text, flags=re.MULTILINE)
    assert match is not None
    assert match[1].split() == [
        "daemon", "--config", "/etc/penstock/penstock.toml", "--dir", "/dev/shm/penstock",
    ]
    usage = run(str(Path(sys.executable).with_name("penstock")), "daemon", "--help")
    assert "--config" in usage
    assert "--dir" in usage


def test_group_members_reach_what_the_daemon_makes() -> None:
    """User, group, mask and directory go together."""
    unit_text = (SYSTEMD / "penstock.service").read_text(encoding="utf-8")
    settings = dict(re.findall(r"^(\w+)=(.*)$", unit_text, flags=re.MULTILINE))
    assert settings["UMask"] == "0007"
    assert settings["RemoveIPC"] == "no"
    assert settings["PrivateUsers"] == "no"
    tmpfiles = (SYSTEMD / "penstock.tmpfiles.conf").read_text(encoding="utf-8")
    line = re.compile(r"^d (\S+) (\S+) (\S+) (\S+) -$", re.MULTILINE)
    path, mode, user, group = line.findall(tmpfiles)[0]
    assert (user, group) == (settings["User"], settings["Group"])
    assert path == settings["ReadWritePaths"]
    assert mode == "2770"


def test_the_kernel_allows_what_the_guide_recommends() -> None:
    """Twice the largest window that the guide names: 16 MiB."""
    text = (SYSTEMD / "penstock.sysctl.conf").read_text(encoding="utf-8")
    match = re.search(r"^net\.core\.rmem_max = (\d+)$", text, flags=re.MULTILINE)
    assert match is not None
    assert int(match[1]) == wanted_bytes(16 << 20)
    guide = (SYSTEMD.parent / "docs" / "operating.md").read_text(encoding="utf-8")
    assert f"net.core.rmem_max={match[1]}" in guide


def test_sysusers_and_tmpfiles_are_understood(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    run("systemd-sysusers", f"--root={root}", str(SYSTEMD / "penstock.sysusers.conf"))
    assert re.search(r"^penstock:", (root / "etc/passwd").read_text(encoding="utf-8"), re.MULTILINE)
    assert re.search(r"^penstock:", (root / "etc/group").read_text(encoding="utf-8"), re.MULTILINE)
    # Ownership needs root; that the lines are read without complaint does not.
    text = (SYSTEMD / "penstock.tmpfiles.conf").read_text(encoding="utf-8")
    own = tmp_path / "own.conf"
    own.write_text(
        text.replace("/dev/shm/penstock", str(tmp_path / "made")).replace(
            "2770 penstock penstock", "2770 - -"), encoding="utf-8")
    run("systemd-tmpfiles", "--create", str(own))
    assert (tmp_path / "made").stat().st_mode & 0o7777 == 0o2770
