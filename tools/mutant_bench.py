# SPDX-License-Identifier: Apache-2.0
"""A tree of its own with a built package, in which one object at a time is another."""

from __future__ import annotations

import os
import runpy
import select
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Final

from mutants import ROOT, Mutant

CFLAGS: Final = ("-std=gnu11", "-UNDEBUG", "-O2", "-fPIC", "-fvisibility=hidden", "-w")
#: A seed that runs for longer than this does not end. The time in which the process waited for a
#: processor does not count: beside other work an unchanged core takes many times as long.
_SILENCE_S: Final = 90.0
_TICK_S: Final = 1.0
_JUDGE: Final = """
import sys
from penstock.sim.generate.fuzz import generate
from penstock.sim.runner import attempt
start, seeds, without = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")
for seed in range(start, start + seeds):
    print(f"seed {seed}: died", flush=True)
    if str(seed) in without:
        continue
    result = attempt(generate(seed), seed)
    if result.violations:
        sys.exit(print(f"seed {seed}: {result.violations[0]}") or 1)
print("fine")
"""


def _waited_s(pid: int) -> float:
    """Return how long a process has waited for a processor."""
    _, waited_ns, _ = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
    return int(waited_ns) / 1e9


class Bench:
    """Builds mutants and runs seeds with them."""

    def __init__(self, place: Path, python: str, without: str = "") -> None:
        self.place = place
        self.without = without      # seeds at which the unchanged core fails, too
        self.python = python
        self.objects = place / "objects"
        self.package = place / "package" / "penstock"
        self.include = sysconfig.get_paths()["include"]
        self._lay_out()

    def _lay_out(self) -> None:
        ignored = shutil.ignore_patterns("*.so", "__pycache__", "_core*.c")
        shutil.copytree(ROOT / "core", self.place / "core", ignore=ignored)
        shutil.copytree(
            ROOT / "penstock/_bench/native", self.place / "penstock/_bench/native", ignore=ignored
        )
        names = ("client", "config", "daemon", "sim", "spark_bridge")
        for name in names:
            shutil.copytree(ROOT / name, self.place / name, ignore=ignored)
        self.package.mkdir(parents=True)
        for path in (ROOT / "penstock").iterdir():
            if path.is_dir() and path.name != "__pycache__" and not path.is_symlink():
                shutil.copytree(path, self.package / path.name, ignore=ignored)
            elif path.is_file() and path.suffix != ".so":
                shutil.copy(path, self.package / path.name)
        for name in ("core", *names):
            (self.package / name).symlink_to(self.place / name)
        for library in (ROOT / "penstock").glob("_*.so"):
            if not library.name.startswith("_core_sim"):
                shutil.copy(library, self.package / library.name)
        self.objects.mkdir()
        subprocess.run(
            [self.python, "-c",
             "from build_core import sim_ffibuilder as b; b.emit_c_code('_core_sim.c')"],
            cwd=self.place / "core", check=True, stdout=subprocess.DEVNULL,
        )
        build = runpy.run_path(str(self.place / "core" / "build_core.py"))
        self.folders = build["FOLDERS"]
        folders = build["CORE_FOLDERS"] + build["SIM_FOLDERS"]
        sources = build["source_files"](self.place, folders)
        self.sources = {source.name: source for source in sources}
        for source in self.sources.values():
            self._compile(source)
        self._compile(self.place / "core" / "_core_sim.c", "-DPy_LIMITED_API=0x030b0000")
        self._link()

    def _compile(self, source: Path, *flags: str) -> bool:
        command = [
            os.environ.get("CC", "cc"), *CFLAGS, *flags, f"-I{self.include}",
            *(f"-I{self.place / folder}" for folder in self.folders),
            "-c", "-o", str(self.objects / f"{source.stem}.o"), str(source),
        ]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def _link(self) -> None:
        fresh = self.package / "_core_sim.new"
        objects = sorted(map(str, self.objects.glob("*.o")))
        subprocess.run(
            [os.environ.get("CC", "cc"), "-shared", "-o", str(fresh), *objects, "-pthread", "-lm"],
            check=True,
        )
        fresh.rename(self.package / "_core_sim.abi3.so")

    def judge(self, start: int, seeds: int) -> str:
        """What noticed, "" when nothing did.  A seed that takes for ever counts as noticed."""
        environment = {
            **os.environ, "PYTHONPATH": str(self.place / "package"), "PYTHONSAFEPATH": "1"
        }
        with subprocess.Popen(
            [self.python, "-c", _JUDGE, str(start), str(seeds), self.without], env=environment,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.place, bufsize=1,
        ) as process:
            assert process.stdout is not None
            verdict = f"seed {start}: died"
            silent_s, waited_s = 0.0, _waited_s(process.pid)
            while True:
                ready, _, _ = select.select([process.stdout], [], [], _TICK_S)
                if not ready:
                    silent_s += _TICK_S
                    if silent_s - (_waited_s(process.pid) - waited_s) > _SILENCE_S:
                        process.kill()
                        return verdict.replace("died", "does not end")
                    continue
                silent_s, waited_s = 0.0, _waited_s(process.pid)
                line = process.stdout.readline()
                if not line:
                    break
                verdict = line.strip()
            process.wait()
            return "" if verdict == "fine" else verdict

    def examine(self, mutant: Mutant, start: int, seeds: int) -> str | None:
        """What noticed; None: the compiler makes the same code of it, or refuses it."""
        path = self.sources[mutant.file]
        built = self.objects / f"{path.stem}.o"
        whole = path.read_text(encoding="utf-8")
        before = built.read_bytes()
        try:
            path.write_text(
                whole[: mutant.begin] + mutant.new + whole[mutant.end :], encoding="utf-8"
            )
            if not self._compile(path) or built.read_bytes() == before:
                return None
            self._link()
            return self.judge(start, seeds)
        finally:
            path.write_text(whole, encoding="utf-8")
            built.write_bytes(before)
