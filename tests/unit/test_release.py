# SPDX-License-Identifier: Apache-2.0
"""Checks of artefacts find each fault in a wheel and in a source archive that are otherwise good.

``make release-check`` builds the real ones; here are small ones with one fault each.
"""

from __future__ import annotations

import io
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools" / "release"))

import artefacts  # noqa: E402
import products  # noqa: E402

TAG = "cp311-abi3-manylinux_2_17_aarch64"
INFO = "penstock-1.0.dist-info"
METADATA = (
    "Metadata-Version: 2.4\nName: penstock\nVersion: 1.0\nLicense-Expression: Apache-2.0\n"
    "Requires-Python: >=3.11\n\nThe wheel for AArch64: emulated, not run on hardware.\n"
)


def a_wheel(folder: Path, *, tag: str = TAG, without: str = "", **more: bytes | str) -> Path:
    """Write a wheel with all that one needs but ``without``, and ``more``."""
    members: dict[str, bytes | str] = dict.fromkeys(artefacts.NEEDED, b"")
    members |= {f"{INFO}/METADATA": METADATA, f"{INFO}/WHEEL": f"Tag: {tag}\n",
                f"{INFO}/licenses/LICENSE": "Apache"} | more
    members.pop(without, None)
    path = folder / f"penstock-1.0-{tag}.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in members.items():
            wheel.writestr(name, text)
    return path


def a_source_archive(folder: Path, **more: str) -> Path:
    path = folder / "penstock-1.0.tar.gz"
    members = dict.fromkeys(artefacts.NEEDED_SOURCE, "") | {"PKG-INFO": METADATA} | more
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members.items():
            member = tarfile.TarInfo(f"penstock-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def test_a_good_wheel_and_archive_have_no_faults(tmp_path: Path) -> None:
    assert artefacts.wheel_faults(a_wheel(tmp_path)) == []
    assert artefacts.source_faults(a_source_archive(tmp_path)) == []


@pytest.mark.parametrize("name", [
    "penstock/py.typed", "penstock/systemd/penstock.service", "penstock/_fast.abi3.so",
])
def test_a_missing_file_is_a_fault(tmp_path: Path, name: str) -> None:
    (fault,) = artefacts.wheel_faults(a_wheel(tmp_path, without=name))
    assert f"{name} is missing" in fault


def test_a_wheel_without_its_licence_is_faulty(tmp_path: Path) -> None:
    (fault,) = artefacts.wheel_faults(a_wheel(tmp_path, without=f"{INFO}/licenses/LICENSE"))
    assert "licence" in fault


@pytest.mark.parametrize("tag", ["cp311-abi3-linux_x86_64", "cp311-cp311-manylinux_2_17_x86_64"])
def test_only_the_stable_interface_and_manylinux_are_published(tmp_path: Path, tag: str) -> None:
    (fault,) = artefacts.wheel_faults(a_wheel(tmp_path, tag=tag))
    assert "the tag is not" in fault


@pytest.mark.parametrize("name", [
    "penstock/tests/test_x.py", "penstock/conftest.py", "penstock/core/a.o", "penstock/.git/HEAD",
])
def test_files_that_users_do_not_need_are_a_fault(tmp_path: Path, name: str) -> None:
    (fault,) = artefacts.wheel_faults(a_wheel(tmp_path, **{name: ""}))
    assert "does not belong there" in fault


def test_a_path_of_the_machine_that_built_it_is_a_fault(tmp_path: Path) -> None:
    text = b"\x7fELF\0/home/somebody/penstock/core/a.c\0"
    (fault,) = artefacts.wheel_faults(a_wheel(tmp_path, **{"penstock/x.abi3.so": text}))
    assert "/home/somebody" in fault


def test_a_wheel_that_is_too_large_is_a_fault(tmp_path: Path) -> None:
    large = a_wheel(tmp_path, **{"penstock/large": bytes(artefacts.MAX_WHEEL_BYTES)})
    (fault,) = artefacts.wheel_faults(large)
    assert "at most" in fault


def test_metadata_of_another_project_are_a_fault(tmp_path: Path) -> None:
    other = {f"{INFO}/METADATA": METADATA.replace("penstock", "other")}
    assert len(artefacts.wheel_faults(a_wheel(tmp_path, **other))) == 1
    assert len(artefacts.source_faults(
        a_source_archive(tmp_path, **{"PKG-INFO": METADATA.replace(">=3.11", ">=3.9")})
    )) == 1


def test_the_wheel_of_an_emulated_machine_says_so(tmp_path: Path) -> None:
    silent = {f"{INFO}/METADATA": METADATA.partition("\n\n")[0]}
    (fault,) = artefacts.wheel_faults(a_wheel(tmp_path, **silent))
    assert "emulated, not run on hardware" in fault
    assert artefacts.EMULATED in (ROOT / "README.md").read_text(encoding="utf-8")
    here = a_wheel(tmp_path, tag=TAG.replace("aarch64", "x86_64"), **silent)
    assert artefacts.wheel_faults(here) == []


def test_tests_in_a_source_archive_are_a_fault(tmp_path: Path) -> None:
    (fault,) = artefacts.source_faults(a_source_archive(tmp_path, **{"tests/unit/test_x.py": ""}))
    assert "does not belong there" in fault


def test_a_symbol_that_no_library_promises_is_a_fault() -> None:
    """Such as epoll_pwait2 in a wheel for a C library that has none."""
    listing = """
Symbol table '.dynsym' contains 5 entries:
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     0: 0000000000000000     0 NOTYPE  LOCAL  DEFAULT  UND
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND epoll_pwait2
     2: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND epoll_ctl@GLIBC_2.17 (3)
     3: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND PyErr_Format
     4: 0000000000000000     0 NOTYPE  WEAK   DEFAULT  UND __gmon_start__
     5: 0000000000001000    40 FUNC    GLOBAL DEFAULT   12 PyInit__core
"""
    (fault,) = artefacts.symbol_faults("_core", listing)
    assert "epoll_pwait2" in fault


def test_contents_state_each_member_with_its_size(tmp_path: Path) -> None:
    listed = artefacts.contents(a_wheel(tmp_path, **{"penstock/x": "12345"}))
    assert "        5  penstock/x" in listed
    source = artefacts.contents(a_source_archive(tmp_path))
    assert any(line.endswith("/PKG-INFO") for line in source)


def test_the_tag_is_that_of_the_c_library_of_the_compiler(tmp_path: Path) -> None:
    compiler, archiver = products.compilers("aarch64", tmp_path)
    assert f"aarch64-linux-gnu.{products.GLIBC}" in compiler.read_text()
    assert products.PLATFORM == "manylinux_2_17"
    assert archiver.stat().st_mode & 0o111


def test_the_wheel_needs_what_the_project_packs() -> None:
    """Files of systemd that are added to the project are looked for in the wheel."""
    packed = {f"penstock/systemd/{path.name}" for path in (ROOT / "systemd").glob("*.*")
              if path.suffix in (".service", ".conf")}
    assert packed <= set(artefacts.NEEDED)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "penstock.systemd" in project["tool"]["setuptools"]["packages"]


def test_release_tools_have_the_versions_of_the_lock() -> None:
    """Packages that both have are the same, so that wheels are built with what tests ran with."""
    def pins(name: str) -> dict[str, str]:
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        return dict(line.rstrip(" \\").split("==") for line in lines if "==" in line)

    tools, all_pins = pins("tools/release/requirements.lock"), pins("requirements.lock")
    assert {"ziglang", "auditwheel", "twine", "cffi", "setuptools"} <= tools.keys()
    assert {n: v for n, v in tools.items() if n in all_pins and v != all_pins[n]} == {}


def test_native_tests_that_are_not_emulated_exist() -> None:
    there = {path.stem for path in (ROOT / "tests" / "native").rglob("test_*.c")}
    assert products.NOT_EMULATED.keys() < there
