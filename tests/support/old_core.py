# SPDX-License-Identifier: Apache-2.0
"""A core with an old mistake put back: changed sources in a package of their own, for a process of
its own.  The scenarios of known failures must fail on it.

``build/old-core`` keeps the objects of the unchanged sources.  The first test that needs them
compiles them; all other test files, workers and runs copy them, until a source changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Final

import attrs

from penstock.sim import files
from penstock.sim.scenario import Scenario
from support import complaints, first_seeds
from support.seeds import SEARCHES

ROOT: Final = Path(__file__).resolve().parent.parent.parent
_KEPT: Final = ROOT / "build" / "old-core"
_COPIED: Final = ("core", "sim/native", "penstock/_bench/native")
_CFLAGS: Final = ("-std=gnu11", "-UNDEBUG", "-O1", "-fPIC", "-fvisibility=hidden", "-w")
_SEARCH: Final = Path(complaints.__file__)
_RUN: Final = """
import sys
from penstock.sim import files
from penstock.sim.world import run
for violation in run(files.parse(sys.stdin.read(), "scenario"), 1).violations:
    print(violation)
"""


@attrs.frozen(kw_only=True)
class Patch:
    """What stands in the source now, and what is to stand there."""

    file: str
    now: str
    old: str


class OldCore:
    """A copy of the core's sources and objects; it compiles a file of the copy for each patch."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._core = place / "core"
        self._objects = place / "objects"
        self._package = place / "package" / "penstock"
        for folder in _COPIED:
            shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns("*.so"))
        build = runpy.run_path(str(self._core / "build_core.py"))
        self._folders = build["FOLDERS"]
        sources = build["source_files"](place, build["CORE_FOLDERS"] + build["SIM_FOLDERS"])
        self._sources = {source.name: source for source in sources}
        self._lay_out()
        _KEPT.mkdir(parents=True, exist_ok=True)
        with (_KEPT / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            made_of = self._digest()
            stamp = _KEPT / "made-of"
            if not stamp.exists() or stamp.read_text(encoding="utf-8") != made_of:
                self._compile_all()
                stamp.unlink(missing_ok=True)
                shutil.rmtree(_KEPT / "objects", ignore_errors=True)
                shutil.copytree(self._objects, _KEPT / "objects")
                stamp.write_text(made_of, encoding="utf-8")
            else:
                shutil.copytree(_KEPT / "objects", self._objects)

    def _digest(self) -> str:
        """Of all that an object is made of."""
        found = hashlib.sha256(repr(self._command(Path("place"))).encode())
        found.update(metadata.version("cffi").encode())
        compiler = [os.environ.get("CC", "cc"), "--version"]
        found.update(subprocess.run(compiler, check=True, capture_output=True).stdout)
        for path in sorted(self._place.rglob("*")):
            name = path.relative_to(self._place)
            if path.suffix in {".c", ".h", ".py"} and not name.is_relative_to("package"):
                found.update(f"{name}\n{path.stat().st_size}\n".encode())
                found.update(path.read_bytes())
        return found.hexdigest()

    def _compile_all(self) -> None:
        self._objects.mkdir()
        subprocess.run(
            [sys.executable, "-c", "from build_core import sim_ffibuilder as b; "
             "b.emit_c_code('_c.c')"],
            cwd=self._core, check=True,
        )
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._compile, self._sources.values()))
        self._compile(self._core / "_c.c")

    def _lay_out(self) -> None:
        self._package.mkdir(parents=True)
        for path in (ROOT / "penstock").iterdir():
            if not path.name.startswith("_core_sim") and path.name != "__pycache__":
                (self._package / path.name).symlink_to(path)
        for name in ("client", "config", "daemon", "sim", "spark_bridge"):
            (self._package / name).symlink_to(ROOT / name)
        (self._package / "core").symlink_to(self._core)

    def _command(self, place: Path) -> list[str]:
        return [
            os.environ.get("CC", "cc"), *_CFLAGS, "-DPy_LIMITED_API=0x030b0000",
            f"-I{sysconfig.get_paths()['include']}",
            *(f"-I{place / folder}" for folder in self._folders),
        ]

    def _object(self, source: Path) -> Path:
        return self._objects / f"{source.stem}.o"

    def _compile(self, source: Path) -> None:
        subprocess.run(
            [*self._command(self._place), "-c", "-o", str(self._object(source)), str(source)],
            check=True,
        )

    def violations(self, scenario: Scenario, patches: Sequence[Patch]) -> list[str]:
        """What the oracles find in a scenario with the patches in place."""
        return self._with(patches, ["-c", _RUN], files.dump(scenario))

    def first_seed(
        self, seeds: Iterable[int], patches: Sequence[Patch], *, whole: bool = False
    ) -> tuple[int, str] | None:
        """The first seed in which the probe complains, with the patches in place, within 20 s, and
        its complaint.

        :param whole: run each seed to its end, and ask the oracles of the end too.
        """
        try:
            lines = self._with(
                patches, [str(_SEARCH), "whole" if whole else "early"], " ".join(map(str, seeds))
            )
        except subprocess.CalledProcessError as error:
            if error.returncode >= 0:
                raise
            lines = [*error.output.splitlines(), f"the core died of signal {-error.returncode}"]
        if not lines or lines[-1].isdecimal():
            return None
        return int(next(line for line in reversed(lines) if line.isdecimal())), lines[-1]

    def finds(
        self, seeds: Iterable[int], patches: Sequence[Patch], *, whole: bool = False
    ) -> str | None:
        """The complaint in the first seed that fails with the patches in place, which passes
        without them.  The seed that was found before (``first_seeds``) is tried first.
        """
        kept = first_seeds.kept()
        found = None if kept is None else self.first_seed([kept], patches, whole=whole)
        if found is None:
            found = self.first_seed(seeds, patches, whole=whole)
        if found is None:
            return None
        seed, complaint = found
        unbroken = complaints.whole(seed) if whole else complaints.early(seed)
        assert unbroken is None, unbroken
        first_seeds.note(seed)
        return complaint

    def _with(self, patches: Sequence[Patch], program: Sequence[str], text: str) -> list[str]:
        paths = [self._sources[patch.file] for patch in patches]
        saved = {path: (path.read_bytes(), self._object(path).read_bytes()) for path in paths}
        try:
            for patch, path in zip(patches, paths, strict=True):
                source = path.read_text(encoding="utf-8")
                assert source.count(patch.now) == 1, f"{patch.file} has changed: {patch.now!r}"
                path.write_text(source.replace(patch.now, patch.old), encoding="utf-8")
            for path in saved:
                self._compile(path)
            return self._run(program, text)
        finally:
            for path, (source_before, object_before) in saved.items():
                path.write_bytes(source_before)
                self._object(path).write_bytes(object_before)

    def _run(self, program: Sequence[str], text: str) -> list[str]:
        library = self._package / "_core_sim.abi3.so"
        library.unlink(missing_ok=True)
        objects = sorted(map(str, self._objects.glob("*.o")))
        subprocess.run(
            [os.environ.get("CC", "cc"), "-shared", "-o", str(library), *objects, "-pthread",
             "-lm"],
            check=True,
        )
        done = subprocess.run(
            [sys.executable, *program], check=True, capture_output=True, text=True,
            input=text, cwd=self._core.parent, timeout=850 if SEARCHES else 300,
            env={**os.environ, "PYTHONPATH": str(self._package.parent), "PYTHONSAFEPATH": "1"},
        )
        return done.stdout.splitlines()
