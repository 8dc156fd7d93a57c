# SPDX-License-Identifier: Apache-2.0
"""Aeron's media driver in C: fetched as a Rust package that carries its sources, built once by the
C compiler, run as a process.  The programs of ``java/`` are its clients."""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from support.processes import Peer

from interop.aeron import HERE, AeronHost, NotBuiltError

MANIFEST = HERE / "c" / "Cargo.toml"
BUILD = HERE.parent.parent / "build" / "interop" / "c"
PROGRAM = BUILD / "aeronmd"
TIMEOUT_S = 600

# As Aeron's CMake files find them on Linux with glibc.
DEFINITIONS = (
    "_GNU_SOURCE", "_DEFAULT_SOURCE", "_FILE_OFFSET_BITS=64", "HAVE_FALLOCATE",
    "HAVE_POSIX_FALLOCATE", "HAVE_DEV_URANDOM", "HAVE_POSIX_MEMALIGN", "HAVE_STRUCT_MMSGHDR",
    "HAVE_RECVMMSG", "HAVE_SENDMMSG", "HAVE_EPOLL", "HAVE_POLL", "DISABLE_BOUNDS_CHECKS",
)


def build() -> None:
    """Fetches the sources and compiles them, unless that was done."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test runs may share the tree
        newest = max(MANIFEST.stat().st_mtime, Path(__file__).stat().st_mtime)
        if not PROGRAM.exists() or PROGRAM.stat().st_mtime < newest:
            _compile(_fetch())


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotBuiltError(str(error)) from error
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).splitlines()[:5]
        raise NotBuiltError(f"{' '.join(command[:2])} failed: {' '.join(lines)}")


def _fetch() -> Path:
    """The folder of Aeron's sources; cargo compares them with the checksums of ``Cargo.lock``."""
    folder = BUILD / "sources"
    _run(["cargo", "vendor", "--quiet", "--locked", f"--manifest-path={MANIFEST}", str(folder)])
    return folder / "libaeron_driver-sys" / "aeron"


def _compile(sources: Path) -> None:
    version = (sources / "version.txt").read_text().strip()
    major, minor, patch = version.split(".")
    folders = [sources / part / "src/main/c" for part in ("aeron-client", "aeron-driver")]
    told = {
        "AERON_VERSION_TXT": f'"{version}"', "AERON_VERSION_MAJOR": major,
        "AERON_VERSION_MINOR": minor, "AERON_VERSION_PATCH": patch,
        "AERON_VERSION_GITSHA": '"unknown"',
    }
    made = BUILD / "aeronmd.new"
    _run([
        "cc", "-std=gnu11", "-O1", "-w", "-pthread",
        # It finds its strategies by name.
        "-rdynamic",
        *(f"-D{name}" for name in DEFINITIONS),
        *(f"-D{name}={value}" for name, value in told.items()),
        *(f"-I{folder}" for folder in folders),
        *sorted(str(path) for folder in folders for path in folder.rglob("*.c")),
        "-o", str(made), "-ldl", "-lm",
    ])  # fmt: skip
    made.replace(PROGRAM)


@contextlib.contextmanager
def aeron_c_host(directory: Path) -> Iterator[AeronHost]:
    """A media driver in C for the length of the block.  Clients wait until it is ready."""
    settings = {
        "aeron.dir": str(directory),
        "aeron.threading.mode": "SHARED",
        "aeron.shared.idle.strategy": "sleeping",
        "aeron.term.buffer.length": "65536",
        "aeron.dir.delete.on.start": "true",
        "aeron.dir.delete.on.shutdown": "true",
    }
    # It does not watch its standard input, so the kernel ends it with the test.
    command = [str(PROGRAM), *(f"-D{name}={value}" for name, value in settings.items())]
    with Peer(["setpriv", "--pdeathsig", "KILL", *command]) as driver:
        try:
            yield AeronHost(directory)
        except BaseException:
            sys.stderr.write(f"--- Aeron's C driver in {directory}\n{driver.errors()}\n")
            raise
