# SPDX-License-Identifier: Apache-2.0
"""A Debian of another machine in a folder, and the emulator that runs its programs.

apt-get fetches the packages with lists and a cache of its own, and dpkg-deb unpacks them: the
machine's packages stay what they are, and no privileges are needed.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

#: Python, and the library that pyzmq's and re2's wheels expect on every system.
PACKAGES = ("python3.11", "libstdc++6")
PYTHON = "usr/bin/python3.11"

CONFIG = """\
Dir::State "{place}/state";
Dir::State::status "{place}/status";
Dir::Cache "{place}/cache";
APT::Architecture "arm64";
APT::Architectures {{"arm64";}};
APT::Install-Recommends "false";
APT::Sandbox::User "";
Debug::NoLocking "true";
"""


def arm64_root(place: Path) -> Path:
    """Return a folder with an arm64 Python; fetch what is not there yet."""
    root = place / "root"
    if (place / "complete").exists():
        return root
    shutil.rmtree(place, ignore_errors=True)
    for folder in ("state/lists/partial", "cache/archives/partial", "root"):
        (place / folder).mkdir(parents=True)
    (place / "status").touch()
    (place / "apt.conf").write_text(CONFIG.format(place=place), encoding="utf-8")
    apt = ["env", f"APT_CONFIG={place}/apt.conf", "apt-get", "-qq"]
    _run([*apt, "update"], place)
    _run([*apt, "-y", "--download-only", "install", *PACKAGES], place)
    for package in sorted((place / "cache/archives").glob("*.deb")):
        _run(["dpkg-deb", "-x", str(package), str(root)], place)
    (place / "complete").touch()
    return root


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


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
