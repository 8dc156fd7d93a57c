# SPDX-License-Identifier: Apache-2.0
"""Check what is in a wheel and in a source archive.

Each function returns texts that state what is wrong; an empty list means that nothing is.
"""

from __future__ import annotations

import re
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Final

#: The wheel for AArch64 states it in its description, which comes from README.md.
EMULATED: Final = "emulated, not run on hardware"
MAX_WHEEL_BYTES: Final = 3 * 1024 * 1024
#: Files of penstock that a wheel must have.
NEEDED: Final = (
    "penstock/_core.abi3.so", "penstock/_core_sim.abi3.so", "penstock/_core_bench.abi3.so",
    "penstock/_fast.abi3.so", "penstock/py.typed", "penstock/_core.pyi",
    "penstock/config/penstock.toml", "penstock/core/include/penstock.h",
    "penstock/systemd/penstock.service", "penstock/systemd/penstock-relay@.service",
    "penstock/systemd/penstock.sysusers.conf", "penstock/systemd/penstock.tmpfiles.conf",
    "penstock/systemd/penstock.sysctl.conf", "penstock/cli/service.py",
)
#: Files that a source archive must have, to build a wheel from it.
NEEDED_SOURCE: Final = (
    "LICENSE", "README.md", "pyproject.toml", "setup.py", "core/build_core.py",
    "core/include/penstock.h", "core/fast/fast.h", "systemd/penstock.service", "PKG-INFO",
)
UNWANTED: Final = re.compile(
    r"(^|/)(tests?|build|\.venv|\.git|\.ci|__pycache__)(/|$)|(^|/)(test_[^/]*|conftest\.py)$"
    r"|\.(o|pyc|lock)$|(^|/)\."
)
#: Folders of a developer's machine: no file that users get may name one.
MACHINE_PATH: Final = re.compile(
    rb"/(?:home/[a-z]|root/|work/|Users/|builddir/|var/tmp/|tmp/pip-)[\w.-]*"
)
TAG: Final = re.compile(r"^penstock-[^-]+-cp311-abi3-manylinux_2_(\d+)_(x86_64|aarch64)\.whl$")


def wheel_faults(path: Path) -> list[str]:
    """State what is wrong with the wheel at ``path``; its symbols are looked at elsewhere."""
    found = []
    if not TAG.match(path.name):
        found.append(f"{path.name}: the tag is not cp311-abi3-manylinux_2_N of a known machine")
    if path.stat().st_size > MAX_WHEEL_BYTES:
        found.append(f"{path.name}: {path.stat().st_size} bytes; at most {MAX_WHEEL_BYTES}")
    with zipfile.ZipFile(path) as wheel:
        texts = {name: wheel.read(name) for name in wheel.namelist()}
    found += [f"{path.name}: {name} is missing" for name in NEEDED if name not in texts]
    infos = [name for name in texts if name.endswith(".dist-info/METADATA")]
    if len(infos) != 1:
        return [*found, f"{path.name}: {len(infos)} METADATA files; expected one"]
    folder = infos[0].rpartition("/")[0]
    if f"{folder}/licenses/LICENSE" not in texts:
        found.append(f"{path.name}: the licence is missing")
    found += _metadata_faults(path.name, texts[infos[0]].decode())
    if "aarch64" in path.name and EMULATED not in texts[infos[0]].decode():
        found.append(f"{path.name}: the description does not say: {EMULATED}")
    tag = "-".join(path.stem.split("-")[2:])
    stated = texts.get(f"{folder}/WHEEL", b"").decode()
    if f"Tag: {tag}\n" not in stated:
        found.append(f"{path.name}: the file WHEEL states another tag")
    return found + _content_faults(path.name, texts)


def source_faults(path: Path) -> list[str]:
    """State what is wrong with the source archive at ``path``."""
    texts = {}
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            stream = archive.extractfile(member) if member.isfile() else None
            if stream is not None:
                texts[member.name.partition("/")[2]] = stream.read()
    found = [f"{path.name}: {name} is missing" for name in NEEDED_SOURCE if name not in texts]
    if "PKG-INFO" in texts:
        found += _metadata_faults(path.name, texts["PKG-INFO"].decode())
    return found + _content_faults(path.name, texts)


def symbol_faults(name: str, listing: str) -> list[str]:
    """State which symbols of an extension no library promises.

    ``listing`` is the output of ``readelf --dyn-syms --wide``.  A shared object may be linked with
    symbols that nobody defines; auditwheel looks only at those that have a version.
    """
    found = []
    for line in listing.splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[6] != "UND" or fields[4] == "WEAK":
            continue
        symbol = fields[7]
        if "@" not in symbol and not re.match(r"_?Py", symbol):
            found.append(f"{name}: the symbol {symbol} is in no library of this C library version")
    return found


def contents(path: Path) -> list[str]:
    """List the members of an artefact, one line each with its size."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            members = [(info.filename, info.file_size) for info in wheel.infolist()]
    else:
        with tarfile.open(path) as archive:
            members = [(info.name, info.size) for info in archive.getmembers() if info.isfile()]
    return [f"{size:>9,}  {name}" for name, size in sorted(members)]


def _metadata_faults(name: str, text: str) -> list[str]:
    stated = HeaderParser().parsestr(text)
    found = []
    if stated["Name"] != "penstock" or not stated["Version"]:
        found.append(f"{name}: the metadata names {stated['Name']} {stated['Version']}")
    if stated["License-Expression"] != "Apache-2.0":
        found.append(f"{name}: the metadata states no licence")
    if stated["Requires-Python"] != ">=3.11":
        found.append(f"{name}: Requires-Python is {stated['Requires-Python']}")
    return found


def _content_faults(name: str, texts: dict[str, bytes]) -> list[str]:
    found = [f"{name}: {member} does not belong there" for member in texts
             if UNWANTED.search(member)]
    for member, text in texts.items():
        named = MACHINE_PATH.search(text)
        if named:
            found.append(f"{name}: {member} names a folder of a machine: {named[0].decode()}")
    return found
