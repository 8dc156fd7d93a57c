# SPDX-License-Identifier: Apache-2.0
"""The examples of the tutorials run as they stand, and print what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.hosts import PenstockHost

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorials.md").read_text(encoding="utf-8")
TUTORIALS = re.findall(
    r'^```python\n--8<-- "examples/(\w+\.py)"\n```\n\n```text\n(.*?)^```', PAGE, re.M | re.S
)


def test_the_page_has_an_example_for_each_task() -> None:
    assert len(TUTORIALS) == 7
    assert len(re.findall("--8<--", PAGE)) == len(TUTORIALS)


@pytest.mark.parametrize(("name", "prints"), TUTORIALS, ids=[name for name, _ in TUTORIALS])
def test_the_example_prints_what_the_page_says(host: PenstockHost, name: str, prints: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name)], capture_output=True,
        text=True, timeout=120.0, check=False,
        env={**os.environ, "PENSTOCK_DIR": str(host.directory)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout == prints
