# SPDX-License-Identifier: Apache-2.0
"""Build the source archive, and from it a wheel for each machine with zig's C compiler.

zig links with the symbol versions of any C library, so no image of an old distribution is needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
HEADERS: Final = Path(__file__).with_name("headers.c")
#: Version of glibc whose symbols the wheels use: that of manylinux2014.
GLIBC: Final = "2.17"
MACHINES: Final = ("x86_64", "aarch64")
#: Native tests that no emulator of one program can run, and the reason.
NOT_EMULATED: Final = {
    "test_pub_sealed": "stops a child after each instruction, which qemu's ptrace does not offer",
    "test_pressure_view": "compares times, which those of translated code do not resemble",
    "test_shared": "punches holes with MADV_REMOVE, which qemu does not pass on",
    "test_pages": "frees pages with MADV_REMOVE, which qemu does not pass on",
    "test_net_udp": "reads IP_MULTICAST_IF back, which qemu does not pass on",
}
PLATFORM: Final = "manylinux_" + GLIBC.replace(".", "_")


def compilers(machine: str, place: Path) -> tuple[Path, Path]:
    """Write two commands: a C compiler for ``machine``, and its archiver."""
    place.mkdir(parents=True, exist_ok=True)
    found = []
    for name, command in (
        (f"cc-{machine}", f"cc -target {machine}-linux-gnu.{GLIBC}"), ("ar", "ar"),
    ):
        path = place / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang {command} "$@"\n')
        path.chmod(0o755)
        found.append(path)
    return found[0], found[1]


def source_archive(place: Path, dist: Path) -> Path:
    """Build the source archive from the files that git lists, and from nothing else."""
    tree = place / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
        check=True, capture_output=True, text=True,
    ).stdout.split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    _run([sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(dist)], tree)
    return next(iter(dist.glob("*.tar.gz")))


def wheel(machine: str, archive: Path, place: Path, dist: Path) -> Path:
    """Build the wheel of ``machine`` from the source archive."""
    tree = place / machine
    shutil.rmtree(tree, ignore_errors=True)
    with tarfile.open(archive) as opened:
        opened.extractall(tree, filter="data")
    compiler, _ = compilers(machine, place / "tools")
    includes = {f"-I{sysconfig.get_path(name)}" for name in ("include", "platinclude")}
    _run([str(compiler), "-c", "-o", str(tree / "headers.o"), *includes, str(HEADERS)], tree)
    _run(
        [sys.executable, "setup.py", "--quiet", "bdist_wheel", "--dist-dir", str(dist),
         "--plat-name", f"{PLATFORM}_{machine}"],
        next(iter(tree.glob("penstock-*"))),
        CC=str(compiler), LDSHARED=f"{compiler} -shared", CFLAGS="", PENSTOCK_BUILD="release",
    )
    return next(iter(dist.glob(f"*_{machine}.whl")))


def native_tests(machine: str, place: Path, runner: str, jobs: int) -> str:
    """Build the native tests for ``machine``, run them and return their verdicts."""
    compiler, archiver = compilers(machine, place / "tools")
    tests = {path.stem for path in (ROOT / "tests/native").rglob("test_*.c")} - NOT_EMULATED.keys()
    done = subprocess.run(
        ["make", "--silent", f"-j{jobs}", "-C", "tests/native", "check", f"CC={compiler}",
         f"AR={archiver}", f"OUT={place}/native-{machine}", f"RUN={runner}", "TIMEOUT=1800",
         f"TESTS={' '.join(sorted(tests))}"],
        cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True,
    )
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}\nnative tests for {machine} failed")
    return done.stdout


def _run(command: list[str], folder: Path, **env: str) -> None:
    epoch = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.strip()
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"SOURCE_DATE_EPOCH": epoch} | env, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}")
