# SPDX-License-Identifier: Apache-2.0
"""Runs the tests in C, in each of the three builds."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("flavour", ["release", "asan", "tsan"])
def test_native_programs_pass(flavour: str) -> None:
    if shutil.which("make") is None or shutil.which("cc") is None:
        pytest.fail("the native tests need make and a C compiler")
    result = subprocess.run(
        ["make", "--no-print-directory", "-s", "-j2", "-C", str(HERE), "check",
         f"FLAVOUR={flavour}"],
        capture_output=True,
        text=True,
        check=False,
    )
    print(result.stdout)
    assert result.returncode == 0, result.stdout + result.stderr
