# SPDX-License-Identifier: Apache-2.0
"""The wheels have the tag that their extension modules deserve: ``auditwheel show``.

The trials of the wheels with other Pythons stay with ``make release-check``.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from support.wheels import MACHINES, PYTHON, ROOT, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

#: Prints what is wrong with the libraries of a wheel.
FAULTS = """
import sys
from pathlib import Path
sys.path.insert(0, "tools/release")
from check import library_faults
print(*library_faults(Path(sys.argv[1])), sep="\\n")
"""


def platform_tag(wheel: Path) -> str:
    """Return the strictest tag that the libraries of a wheel agree with."""
    shown = " ".join(run(PYTHON, "-m", "auditwheel", "show", wheel).split())
    found = re.search(r'is consistent with the following platform tag: "(\w+)"', shown)
    assert found is not None, shown
    return found[1]


@pytest.mark.parametrize("machine", MACHINES)
def test_auditwheel_confirms_the_tag(release: Path, machine: str) -> None:
    (wheel,) = release.glob(f"*_{machine}.whl")
    assert wheel.name.endswith(f"-cp311-abi3-manylinux_2_17_{machine}.whl")
    assert platform_tag(wheel) == f"manylinux_2_17_{machine}"


def test_modules_of_the_machine_s_compiler_do_not_deserve_the_tag(
    release: Path, tmp_path: Path
) -> None:
    """A wheel that has the right name, and one module that needs this machine's C library."""
    (wheel,) = release.glob("*_x86_64.whl")
    wrong = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as good, zipfile.ZipFile(wrong, "w") as made:
        for member in good.infolist():
            name = member.filename
            replaced = name == "penstock/_core.abi3.so"
            made.writestr(member, (ROOT / name).read_bytes() if replaced else good.read(name))
    assert platform_tag(wrong) != "manylinux_2_17_x86_64"
    assert "platform tag" in run(PYTHON, "-c", FAULTS, wrong)
