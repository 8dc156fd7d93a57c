# SPDX-License-Identifier: Apache-2.0
"""What a machine cannot run is said by anybody's run and fails CI's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def run_without(command: str, ci: str, tmp_path: Path, *tests: str) -> tuple[int, str]:
    """Runs tests with all commands but one."""
    for folder in os.environ["PATH"].split(os.pathsep):
        for path in Path(folder).glob("*"):
            if path.name != command and not (tmp_path / path.name).exists():
                (tmp_path / path.name).symlink_to(path)
    assert shutil.which(command, path=str(tmp_path)) is None
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *tests],
        cwd=TESTS.parent, env={**os.environ, "PATH": str(tmp_path), "CI": ci}, check=False,
        capture_output=True, text=True, timeout=120,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("command", "test"),
    [
        ("java", "tests/loopback/test_demo.py::test_the_demo_is_equal_to_the_last_row_and_leaves"
                 "_nothing"),
        ("java", "tests/loopback/test_spark_install.py"),
        ("systemd-analyze", "tests/unit/cli/test_systemd.py::test_the_unit_is_clean"),
    ],
)
def test_a_missing_command_fails_ci_and_only_ci(command: str, test: str, tmp_path: Path) -> None:
    status, said = run_without(command, "true", tmp_path, test)
    assert status == 1
    assert f"NOT RUN: the command {command} is missing" in said
    status, said = run_without(command, "", tmp_path, test)
    assert status == 0, said
    assert re.search(rf"SKIPPED .* NOT RUN: the command {command} is missing", said), said


def test_nothing_is_left_out_in_any_other_way() -> None:
    """A skip of one's own would go unnoticed in CI."""
    wrong = [
        f"{path.relative_to(TESTS)}: {found[0]}"
        for path in TESTS.rglob("*.py")
        if path.name != "not_run.py" and path != Path(__file__)
        if (found := re.findall(
            r"pytest\.skip\(|skipif|importorskip|mark\.skip|xfail", path.read_text("utf-8")))
    ]
    assert wrong == []
