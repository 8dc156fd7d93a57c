# SPDX-License-Identifier: Apache-2.0
"""The wheels that `make release-check` builds: with zig's compiler, for glibc 2.17.

They are built with the pinned tools of ``make release-check``, in an environment of their own
(``build/release/tools``).
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

from support.own_network import machine_network

ROOT: Final = Path(__file__).parents[2]
TOOLS: Final = ROOT / "build" / "release" / "tools"
PYTHON: Final = TOOLS / "bin" / "python"
MACHINES: Final = ("x86_64", "aarch64")


def run(*argv: str | Path) -> str:
    """Run a command at the root of the tree and return what it printed."""
    done = subprocess.run(
        [str(word) for word in argv], cwd=ROOT, check=False, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def build(place: Path) -> Path:
    """Build the wheels in a folder and return that which has them."""
    with machine_network():
        run("make", "--silent", TOOLS.relative_to(ROOT) / ".installed")
        run(PYTHON, "tools/release/check.py", place, "--build-only", *MACHINES)
    return place / "dist"
