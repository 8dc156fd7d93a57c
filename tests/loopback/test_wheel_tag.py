# SPDX-License-Identifier: Apache-2.0
"""The wheels have the tag that their extension modules deserve: ``auditwheel show``.

The test builds the wheels with the pinned tools of ``make release-check``, in their own environment
(``build/release/tools``).  The trials of the wheels stay with ``make release-check``.
"""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from support.own_network import machine_network

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "build" / "release" / "tools"
MACHINES = ("x86_64", "aarch64")
#: Prints what is wrong with the libraries of a wheel.
FAULTS = """
import sys
from pathlib import Path
sys.path.insert(0, "tools/release")
from check import library_faults
print(*library_faults(Path(sys.argv[1])), sep="\\n")
"""


def run(*argv: str | Path) -> str:
    done = subprocess.run(
        [str(word) for word in argv], cwd=ROOT, check=False, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels that `make release-check` builds, with zig's compiler and for glibc 2.17."""
    place = tmp_path_factory.mktemp("release")
    with machine_network():
        run("make", "--silent", TOOLS.relative_to(ROOT) / ".installed")
        run(TOOLS / "bin" / "python", "tools/release/check.py", place, "--build-only", *MACHINES)
    return place / "dist"


def platform_tag(wheel: Path) -> str:
    """Return the strictest tag that the libraries of a wheel agree with."""
    shown = " ".join(run(TOOLS / "bin" / "python", "-m", "auditwheel", "show", wheel).split())
    found = re.search(r'is consistent with the following platform tag: "(\w+)"', shown)
    assert found is not None, shown
    return found[1]


@pytest.mark.parametrize("machine", MACHINES)
def test_auditwheel_confirms_the_tag(dist: Path, machine: str) -> None:
    (wheel,) = dist.glob(f"*_{machine}.whl")
    assert wheel.name.endswith(f"-cp311-abi3-manylinux_2_17_{machine}.whl")
    assert platform_tag(wheel) == f"manylinux_2_17_{machine}"


def test_modules_of_the_machine_s_compiler_do_not_deserve_the_tag(
    dist: Path, tmp_path: Path
) -> None:
    """A wheel that has the right name, and one module that needs this machine's C library."""
    (wheel,) = dist.glob("*_x86_64.whl")
    wrong = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as good, zipfile.ZipFile(wrong, "w") as made:
        for member in good.infolist():
            name = member.filename
            replaced = name == "penstock/_core.abi3.so"
            made.writestr(member, (ROOT / name).read_bytes() if replaced else good.read(name))
    assert platform_tag(wrong) != "manylinux_2_17_x86_64"
    assert "platform tag" in run(TOOLS / "bin" / "python", "-c", FAULTS, wrong)
