# SPDX-License-Identifier: Apache-2.0
"""Judges mutants by native tests: programs that are linked with one changed object."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from mutants import ROOT, Mutant, files

NATIVE: Final = ROOT / "tests" / "native"
CFLAGS: Final = ("-std=gnu11", "-UNDEBUG", "-O2", "-fno-omit-frame-pointer", "-w")
#: Runs a program within a time-out that does not count the time of other programs.
_PATIENCE: Final = (sys.executable, str(ROOT / "tests" / "support" / "patience.py"), "60")


def _folders() -> list[Path]:
    """Where the Makefile of the native tests looks for headers."""
    found = [ROOT / "core" / "include", ROOT / "penstock" / "_bench" / "native", NATIVE]
    return found + sorted((ROOT / "core" / "src").iterdir()) + sorted(
        (ROOT / "sim" / "native").iterdir()
    )


class NativeBench:
    """Builds mutants, and runs the named programs with them."""

    def __init__(self, place: Path, programs: list[str]) -> None:
        self.place = place
        self.sources = {path.name: path for path in files()}
        built = ROOT / "build" / "native" / "release"
        subprocess.run(
            ["make", "-s", "-C", str(NATIVE), *(str(built / name) for name in programs)],
            check=True,
        )
        support = sorted(map(str, (built / "tests" / "support").glob("*.o")))
        self.rest = [*support, str(built / "libpenstock.a"), "-pthread", "-lm"]
        self.programs = {
            name: next((built / "tests").glob(f"*/{name}.o")) for name in programs
        }
        place.mkdir(parents=True)

    def _compile(self, source: Path) -> bytes | None:
        command = [
            os.environ.get("CC", "cc"), *CFLAGS, *(f"-I{folder}" for folder in _folders()),
            "-c", "-o", str(source.with_suffix(".o")), str(source),
        ]
        if subprocess.run(command, check=False, capture_output=True).returncode != 0:
            return None
        return source.with_suffix(".o").read_bytes()

    def _passes(self, name: str, changed: list[str]) -> bool:
        program = self.place / name
        subprocess.run(
            [os.environ.get("CC", "cc"), "-o", str(program), str(self.programs[name]), *changed,
             *self.rest], check=True,
        )
        done = subprocess.run([*_PATIENCE, str(program)], check=False, capture_output=True)
        return done.returncode == 0

    def _failed(self, changed: list[str]) -> str:
        return next((name for name in self.programs if not self._passes(name, changed)), "")

    def judge(self, _start: int, _seeds: int) -> str:
        """The program that fails without a change, "" none."""
        return self._failed([])

    def examine(self, mutant: Mutant, _start: int, _seeds: int) -> str | None:
        """The program that fails; None: the compiler makes the same code of it, or refuses it."""
        path = self.place / mutant.file
        whole = self.sources[mutant.file].read_text(encoding="utf-8")
        path.write_text(whole, encoding="utf-8")
        before = self._compile(path)
        path.write_text(whole[: mutant.begin] + mutant.new + whole[mutant.end :], encoding="utf-8")
        after = self._compile(path)
        if after is None or after == before:
            return None
        return self._failed([str(path.with_suffix(".o"))])
