# SPDX-License-Identifier: Apache-2.0
"""Build every artefact of a release, check them, and run what they install.

    check.py PLACE [--pythons "python3.11 python3.12"] [--without-debian] [--without-emulation]
        [--without-native]
    check.py PLACE --build-only [MACHINE ...]

``make release-check`` calls it with the Python of PLACE/tools, which has requirements.lock.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import artefacts
import debian
import products
import trial
from artefacts import EMULATED
from packaging.requirements import Requirement

#: Packages that the tests of the client need beside the wheel's own.
CLIENT_TESTS_NEED = (
    "execnet", "hypothesis", "iniconfig", "numpy", "packaging", "pluggy", "pytest",
    "pytest-timeout", "pytest-trio", "pytest-xdist",
)


def main() -> None:
    """Print one line a check; end with status 1 at the first fault."""
    options = _options()
    place = options.place.resolve()
    dist = place / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    source = products.source_archive(place, dist)
    machines = options.build_only or products.MACHINES
    wheels = {name: products.wheel(name, source, place, dist) for name in machines}
    faults = artefacts.source_faults(source)
    for path in wheels.values():
        faults += artefacts.wheel_faults(path) + library_faults(path)
    if faults:
        raise SystemExit("\n".join(faults))
    _module("twine", "check", "--strict", *map(str, (source, *wheels.values())))
    if options.build_only is not None:
        return
    pins = _pins(wheels["x86_64"], place / "requirements.txt")
    for python in options.pythons or _pythons_here():
        _try_here(python, wheels["x86_64"], pins, place)
    if options.debian:
        _try_pythons_of_debian(wheels["x86_64"], pins, place)
    print("not tried: CPython 3.11 and later as other systems build it, free-threaded builds, PyPy")
    if options.emulation:
        _try_emulated(wheels["aarch64"], pins, place, options.native)
    _print_contents([source, *wheels.values()])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build and check the artefacts of a release.")
    parser.add_argument("place", type=Path)
    parser.add_argument("--build-only", nargs="*", choices=products.MACHINES, metavar="MACHINE",
                        help="build the wheels of these machines, default all, and check their "
                             "contents and their tag; run nothing that they install")
    parser.add_argument("--pythons", default=[], type=str.split)
    parser.add_argument("--without-debian", dest="debian", action="store_false")
    parser.add_argument("--without-emulation", dest="emulation", action="store_false")
    parser.add_argument("--without-native", dest="native", action="store_false")
    return parser.parse_args()


def library_faults(path: Path) -> list[str]:
    """Compare the wheel's libraries with its tag, and look for symbols that no library has."""
    machine = path.stem.rpartition(f"{products.PLATFORM}_")[2]
    shown = " ".join(_module("auditwheel", "show", str(path)).split())
    tag = f"{products.PLATFORM}_{machine}"
    found = [] if f'following platform tag: "{tag}"' in shown else [f"{path.name}: {shown}"]
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as wheel:
        for name in wheel.namelist():
            if name.endswith(".so"):
                listing = subprocess.run(
                    ["readelf", "--dyn-syms", "--wide", wheel.extract(name, folder)], check=True,
                    capture_output=True, text=True,
                ).stdout
                found += artefacts.symbol_faults(f"{path.name}: {name}", listing)
    return found


def _locked() -> dict[str, str]:
    """Return the blocks of the lock, with hashes, by the name of the package."""
    lock = (products.ROOT / "requirements.lock").read_text(encoding="utf-8")
    return {block.partition("==")[0]: block for block in re.split(r"\n(?=\S)", lock)}


def _pins(path: Path, pins: Path) -> Path:
    """Write the pinned versions, with hashes, of all that the wheel requires."""
    blocks = _locked()
    with zipfile.ZipFile(path) as wheel:
        info = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
        required = [
            Requirement(line.partition(": ")[2])
            for line in wheel.read(info).decode().splitlines() if line.startswith("Requires-Dist")
        ]
    report = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--dry-run", "--ignore-installed", "--report", "-", "--constraint", "/dev/stdin",
         *(str(one) for one in required if one.marker is None)],
        input="\n".join(block.partition(" ")[0] for block in blocks.values() if "==" in block),
        check=True, capture_output=True, text=True,
    ).stdout
    names = set(re.findall(r'"metadata": \{[^}]*?"name": "([^"]+)"', report))
    chosen = sorted(blocks[name.lower().replace("_", "-").replace(".", "-")] for name in names)
    pins.write_text("\n".join(chosen) + "\n", encoding="utf-8")
    return pins


def _try_here(python: str, path: Path, pins: Path, place: Path) -> None:
    """Install the wheel into a fresh environment of ``python`` and run it."""
    folder = place / "try"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    own = str(folder / "bin" / "python")
    pip = [own, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--require-hashes", "--only-binary", ":all:",
                    "-r", str(pins)], check=True)
    subprocess.run([*pip, "install", "--no-deps", str(path)], check=True)
    subprocess.run([*pip, "check"], check=True)
    env = trial.clean_environment()
    where = trial.imported_file([own], env)
    if str(folder) not in where:
        raise SystemExit(f"{python}: imported {where}")
    trial.commands([own], env)
    trial.hello([own], env)
    print(f"{path.name}: import, service, completion and hello world with CPython "
          f"{where.rpartition(' ')[2]}")


def _pythons_here() -> list[str]:
    """Return the CPythons of this machine that are new enough, one of each version."""
    found: dict[str, str] = {}
    folders = [Path(name) for name in os.environ.get("PATH", "").split(os.pathsep)]
    for folder in [*folders, *Path.home().glob(".pyenv/versions/*/bin")]:
        for path in sorted(folder.glob("python3.[0-9][0-9]")):
            done = subprocess.run(
                [path, "-c", "import platform, sys, ensurepip, venv; "
                 "print(platform.python_implementation(), platform.python_version()); "
                 "sys.exit(sys.version_info < (3, 11))"],
                check=False, capture_output=True, text=True,
            )
            if done.returncode == 0 and done.stdout.startswith("CPython "):
                found.setdefault(done.stdout, str(path))
    return list(found.values())


def _install(site: Path, machine: str, version: str, path: Path, pins: list[Path]) -> str:
    """Install the wheel and the pinned packages for another Python; return the error of pip."""
    shutil.rmtree(site, ignore_errors=True)
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
        "--target", str(site), "--python-version", version, "--implementation", "cp",
        "--only-binary", ":all:", "--no-deps",
    ]
    for tag in ("manylinux_2_17", "manylinux_2_28", "manylinux2014"):
        command += ["--platform", f"{tag}_{machine}"]
    wanted = [word for pin in pins for word in ("-r", str(pin))]
    for more in (["--require-hashes", *wanted], [str(path)]):
        done = subprocess.run([*command, *more], check=False, capture_output=True, text=True)
        if done.returncode != 0:
            return done.stderr.strip().splitlines()[-1]
    return ""


def _try_pythons_of_debian(path: Path, pins: Path, place: Path) -> None:
    """Run the wheel with each CPython of each suite, which brings its own C library."""
    for suite in debian.SUITES:
        for python in debian.offered(place, "amd64", suite):
            version = python.removeprefix("python")
            site = place / f"site-{python}"
            error = _install(site, "x86_64", version, path, [pins])
            if error:
                print(f"not tried: CPython {version} of Debian {suite}: {error}")
                continue
            root = debian.root_with(place, "amd64", suite, python)
            command = debian.own_python(root, python)
            env = trial.clean_environment(PYTHONPATH=str(site))
            where = trial.imported_file(command, env)
            if str(site) not in where:
                raise SystemExit(f"{python}: imported {where}")
            trial.hello(command, env)
            print(f"{path.name}: import and hello world with CPython "
                  f"{where.rpartition(' ')[2]} of Debian {suite}")


def _try_emulated(path: Path, pins: Path, place: Path, native: bool) -> None:
    """Run the arm64 wheel, the client's tests and the native tests under qemu."""
    root = debian.root_with(place, "arm64", "bookworm", "python3.11")
    qemu = str(debian.emulator(place / "qemu"))
    site = place / "site-arm64"
    testing = place / "requirements-testing.txt"
    blocks = _locked()
    testing.write_text("\n".join(blocks[name] for name in CLIENT_TESTS_NEED) + "\n", "utf-8")
    error = _install(site, "aarch64", "3.11", path, [pins, testing])
    if error:
        raise SystemExit(error)
    python = [qemu, "-L", str(root), str(root / "usr/bin/python3.11")]
    env = trial.clean_environment(PYTHONPATH=str(site))
    where = trial.imported_file(python, env)
    if str(site) not in where or " aarch64 " not in where:
        raise SystemExit(f"under qemu: imported {where}")
    trial.hello(python, env)
    print(f"{path.name}: import and hello world with CPython {where.rpartition(' ')[2]} "
          f"({EMULATED})")
    print(f"{path.name}: {trial.client_tests(python, env, place)} ({EMULATED})")
    if native:
        print(products.native_tests("aarch64", place, f"{qemu} -L {root}", 2), end="")
        print(f"native tests for aarch64 ({EMULATED})")
        for name, reason in products.NOT_EMULATED.items():
            print(f"not run: {name}, which {reason}")


def _print_contents(paths: list[Path]) -> None:
    for path in paths:
        print(f"\n{path.name}: {path.stat().st_size:,} bytes")
        print("\n".join(artefacts.contents(path)))


def _module(*command: str) -> str:
    """Run a module with this Python and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", *command], check=False, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
