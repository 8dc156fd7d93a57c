# SPDX-License-Identifier: Apache-2.0
"""What the machine lacks is named with the package that has it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "ensure_packages.sh"
TOOLS = ("sh", "grep", "id", "test")


def missing(tmp_path: Path, **programs: str) -> str:
    """What is said of the tests' packages where only ``programs`` are, each a shell script."""
    for name in TOOLS:
        (tmp_path / name).symlink_to(Path("/usr/bin") / name)
    (tmp_path / "id").unlink()
    for name, text in {"id": "echo 1000", **programs}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    script = SCRIPT.read_text(encoding="utf-8").replace(":/usr/sbin:/sbin", "")
    done = subprocess.run(
        ["/bin/sh", "-s", "tests"], input=script, env={"PATH": str(tmp_path)}, check=True,
        capture_output=True, text=True, timeout=60,
    )
    return done.stderr


@pytest.mark.parametrize(
    ("javac", "enough"), [("11.0.22", False), ("1.8.0_402", False), ("17.0.15", True),
                          ("21.0.2", True)],
)
def test_an_old_java_is_as_good_as_none(tmp_path: Path, javac: str, enough: bool) -> None:
    said = missing(tmp_path, javac=f"echo javac {javac}", java=":")
    assert ("Java 17" not in said) is enough
    assert "Maven" in said
    assert "apt-get install" in said


def test_nothing_is_missing_where_all_is(tmp_path: Path) -> None:
    there = ("java", "mvn", "ip", "unshare", "nsenter", "setpriv", "mount", "clang",
             "systemd-analyze")
    assert missing(tmp_path, javac="echo javac 17.0.15", **dict.fromkeys(there, ":")) == ""


def test_all_that_is_missing_is_one_command(tmp_path: Path) -> None:
    said = missing(tmp_path)
    assert said.splitlines()[-1].split()[:4] == ["install", "with:", "apt-get", "install"]
    assert "maven iproute2 util-linux mount clang libclang-rt-dev systemd" in said
