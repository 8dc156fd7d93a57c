# SPDX-License-Identifier: Apache-2.0
"""A seeded stretch of each C fuzz target; the long runs are in README.md beside this."""

import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_kept_corpora_and_their_mutations() -> None:
    result = subprocess.run(
        ["make", "--no-print-directory", "-s", "-j2", "-C", str(HERE), "check"],
        capture_output=True,
        text=True,
        check=False,
    )
    print(result.stdout)
    assert result.returncode == 0, result.stdout + result.stderr
    for target in sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.c")):
        assert f" {target} " in result.stdout
