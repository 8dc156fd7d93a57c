# SPDX-License-Identifier: Apache-2.0
"""Pythons of Debian's suites in folders, also for another machine, and the emulator that runs them.

apt-get fetches the packages with lists and a cache of its own, and dpkg-deb unpacks them: the
machine's packages stay what they are, and no privileges are needed.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

#: The library that pyzmq's and re2's wheels expect on every system.
LIBRARIES = ("libstdc++6",)
#: Suites that offer Pythons, from the oldest to the newest.
SUITES = ("bookworm", "trixie", "sid")
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"

#: The wheels need CPython 3.11.
OLDEST_MINOR = 11

CONFIG = """\
Dir::State "{place}/state";
Dir::State::status "{place}/status";
Dir::Cache "{place}/cache";
Dir::Etc::sourcelist "{place}/sources.list";
Dir::Etc::sourceparts "-";
APT::Architecture "{machine}";
APT::Architectures {{"{machine}";}};
APT::Install-Recommends "false";
APT::Sandbox::User "";
Debug::NoLocking "true";
"""


def offered(place: Path, machine: str, suite: str) -> list[str]:
    """Return the packages of CPython in a suite, such as python3.13; fetch the suite's list."""
    lists = place / f"lists-{suite}-{machine}"
    _apt(lists, machine, suite, "apt-get", "-qq", "update")
    shown = _apt(lists, machine, suite, "apt-cache", "search", "--names-only", r"^python3\.[0-9]+$")
    names = [line.partition(" ")[0] for line in shown.splitlines()]
    return sorted(
        (name for name in names if _minor(name) >= OLDEST_MINOR), key=_minor
    )


def root_with(place: Path, machine: str, suite: str, python: str) -> Path:
    """Return a folder with ``python`` of a suite; fetch it if it is not there yet."""
    folder = place / f"{python}-{suite}-{machine}"
    root = folder / "root"
    if (folder / "complete").exists():
        return root
    shutil.rmtree(folder, ignore_errors=True)
    root.mkdir(parents=True)
    _apt(folder, machine, suite, "apt-get", "-qq", "update")
    _apt(folder, machine, suite, "apt-get", "-qq", "-y", "--download-only", "install", python,
         *LIBRARIES)
    for package in sorted((folder / "cache/archives").glob("*.deb")):
        _run(["dpkg-deb", "-x", str(package), str(root)], folder)
    for name in ("lib", "lib64"):       # packages of newer suites expect that /lib is /usr/lib
        if not (root / name).exists() and (root / "usr" / name).exists():
            (root / name).symlink_to(f"usr/{name}")
    shutil.rmtree(folder / "cache")
    (folder / "complete").touch()
    return root


def own_python(root: Path, python: str) -> list[str]:
    """Return the command that runs an x86-64 Python with the C library of its own folder."""
    libraries = ":".join(str(root / name) for name in (
        "usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu",
    ))
    loader = next(root.glob("usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"), None) or next(
        root.glob("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    )
    return [str(loader), "--library-path", libraries, str(root / "usr/bin" / python)]


def _minor(python: str) -> int:
    return int(python.rpartition(".")[2])


def _apt(place: Path, machine: str, suite: str, *command: str) -> str:
    """Run a command of apt with lists, a cache and a configuration in ``place``."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    (place / "status").touch()
    (place / "sources.list").write_text(
        f"deb [signed-by={KEYS}] http://deb.debian.org/debian {suite} main\n", encoding="utf-8"
    )
    (place / "apt.conf").write_text(
        CONFIG.format(place=place, machine=machine), encoding="utf-8"
    )
    return _run(["env", f"APT_CONFIG={place}/apt.conf", *command], place)


def emulator(place: Path) -> Path:
    """Return qemu-aarch64-static: the machine's, or one from Debian's package."""
    installed = shutil.which("qemu-aarch64-static")
    if installed:
        return Path(installed)
    program = place / "usr/bin/qemu-aarch64-static"
    if not program.exists():
        place.mkdir(parents=True, exist_ok=True)
        _run(["apt-get", "-qq", "-o", "APT::Sandbox::User=", "download", "qemu-user-static"], place)
        package = next(iter(place.glob("qemu-user-static*.deb")))
        _run(["dpkg-deb", "-x", str(package), str(place)], place)
        package.unlink()
    return program


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
