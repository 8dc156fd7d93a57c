# SPDX-License-Identifier: Apache-2.0
"""Mutation test of the simulator's oracles.

Makes small wrong changes to the protocol core (a comparison turned, an off-by-one, a limit or timer
doubled or halved, an addition for a subtraction), builds each into an extension of its own — only
the changed object is compiled again — and runs the library's scenarios and generated ones until
something notices.  Prints the kill rate and every survivor with its line.

    python tools/mutate.py --sample 60 --seeds 200 --random 1
    python tools/mutate.py --only ps_gaps.c --seeds 1000
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = (
    "ps_publication*.c", "ps_image*.c", "ps_nak.c", "ps_gaps.c", "ps_retransmit.c",
    "ps_flow_control.c", "ps_fc_*.c", "ps_congestion.c", "ps_cubic.c", "ps_destinations.c",
)
#: (pattern, replacements): each match makes one mutant for each replacement.
OPERATORS = (
    (r"(?<=\s)<=(?=\s)", ("<", ">")),
    (r"(?<=\s)>=(?=\s)", (">", "<")),
    (r"(?<=\s)<(?=\s)", ("<=", ">=")),
    (r"(?<=\s)>(?=\s)", (">=", "<=")),
    (r"(?<=\s)==(?=\s)", ("!=",)),
    (r"(?<=\s)!=(?=\s)", ("==",)),
    (r"(?<=\w )\+(?= \w)", ("-",)),
    (r"(?<=\w )-(?= \w)", ("+",)),
    (r"(?<=\s)&&(?=\s)", ("||",)),
    (r"(?<=\s)\|\|(?=\s)", ("&&",)),
    (r"(?<== )true(?=;)", ("false",)),
    (r"(?<== )false(?=;)", ("true",)),
    (r"\b\w+_(?:TIMEOUT|INTERVAL|DELAY|TICK|WINDOW|MAX)\w*_NS\b", ("(10 * {})", "({} / 10)")),
)
CFLAGS = ("-std=gnu11", "-UNDEBUG", "-O1", "-fPIC", "-fvisibility=hidden", "-w")


def strip(text: str) -> str:
    """The text with comments, strings, preprocessor lines and assertions blanked, same length."""

    def blank(match: re.Match[str]) -> str:
        return "".join("\n" if letter == "\n" else " " for letter in match[0])

    text = re.sub(r"/\*.*?\*/", blank, text, flags=re.DOTALL)
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', blank, text)
    text = re.sub(r"\bassert\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\);", blank, text)
    return re.sub(r"^[ \t]*#.*$", blank, text, flags=re.MULTILINE)


def mutants(path: Path) -> list[tuple[int, int, str]]:
    """(begin, end, replacement) of every mutant of a file."""
    code = strip(path.read_text(encoding="utf-8"))
    found = []
    for pattern, replacements in OPERATORS:
        for match in re.finditer(pattern, code):
            found += [
                (match.start(), match.end(), text.replace("{}", match[0])) for text in replacements
            ]
    return sorted(found)


class Bench:
    """A tree of its own with a built package, in which one object changes at a time."""

    def __init__(self, place: Path, python: str) -> None:
        self.place = place
        self.python = python
        self.objects = place / "objects"
        self.package = place / "package" / "penstock"
        self.include = sysconfig.get_paths()["include"]
        self._lay_out()

    def _lay_out(self) -> None:
        shutil.copytree(ROOT / "core", self.place / "core", ignore=shutil.ignore_patterns("*.so"))
        self.package.mkdir(parents=True)
        for path in (ROOT / "penstock").iterdir():
            if path.suffix != ".so" and path.name != "__pycache__":
                (self.package / path.name).symlink_to(path)
        for name in ("client", "config", "daemon", "sim", "spark_bridge"):
            (self.package / name).symlink_to(ROOT / name)
        (self.package / "core").symlink_to(self.place / "core")
        for library in (ROOT / "penstock").glob("_*.so"):
            if not library.name.startswith("_core"):
                (self.package / library.name).symlink_to(library)
        self.objects.mkdir()
        subprocess.run(
            [self.python, "-c", "from build_core import ffibuilder as b; b.emit_c_code('_core.c')"],
            cwd=self.place / "core", check=True,
        )
        for source in (self.place / "core" / "src").glob("*.c"):
            self.compile(source)
        self.compile(self.place / "core" / "_core.c", "-DPy_LIMITED_API=0x030b0000")
        self.link()

    def compile(self, source: Path, *flags: str) -> bool:
        command = [
            os.environ.get("CC", "cc"), *CFLAGS, *flags, f"-I{self.include}",
            f"-I{self.place / 'core' / 'include'}", f"-I{self.place / 'core' / 'src'}",
            "-c", "-o", str(self.objects / f"{source.stem}.o"), str(source),
        ]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0

    def link(self) -> None:
        fresh = self.package / "_core.new"
        objects = sorted(map(str, self.objects.glob("*.o")))
        subprocess.run(
            [os.environ.get("CC", "cc"), "-shared", "-o", str(fresh), *objects, "-pthread", "-lm"],
            check=True,
        )
        fresh.rename(self.package / "_core.abi3.so")

    def judge(self, seeds: int, timeout_s: float) -> str:
        """What noticed, "" when nothing did."""
        environment = {
            **os.environ, "PYTHONPATH": str(self.place / "package"), "PYTHONSAFEPATH": "1"
        }
        try:
            done = subprocess.run(
                [self.python, "-c", _JUDGE, str(seeds)], env=environment, check=False,
                capture_output=True, text=True, timeout=timeout_s, cwd=self.place,
            )
        except subprocess.TimeoutExpired:
            return "time-out"
        if done.returncode == 0:
            return ""
        return (done.stdout.strip() or done.stderr.strip().splitlines()[-1:] or "died").__str__()


_JUDGE = """
import sys
from penstock.sim import files, library
from penstock.sim.runner import attempt, sweep
for name in library.names():
    found = attempt(files.load(library.path_of(name)), 1).violations
    if found:
        sys.exit(print(f"{name}: {found[0]}") or 1)
for result in sweep(1, int(sys.argv[1])):
    if result.violations:
        sys.exit(print(f"seed {result.seed}: {result.violations[0]}") or 1)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sample", type=int, default=0, help="so many mutants; 0: all")
    parser.add_argument("--seeds", type=int, default=1000, help="until killed")
    parser.add_argument("--random", type=int, default=1, help="seed of the choice")
    parser.add_argument("--only", default="", help="only this file")
    parser.add_argument("--timeout-s", type=float, default=600.0)
    parser.add_argument("--json", type=Path, help="write the results here")
    args = parser.parse_args()
    patterns = (args.only,) if args.only else FILES
    names = sorted({path.name for p in patterns for path in (ROOT / "core/src").glob(p)})
    todo = [(name, change) for name in names for change in mutants(ROOT / "core/src" / name)]
    if args.sample:
        todo = random.Random(args.random).sample(todo, min(args.sample, len(todo)))
    results = []
    with tempfile.TemporaryDirectory(prefix="penstock-mutants-") as place:
        bench = Bench(Path(place), sys.executable)
        if verdict := bench.judge(args.seeds, args.timeout_s):
            print(f"the unchanged core fails: {verdict}", file=sys.stderr)
            return 2
        for name, (begin, end, text) in todo:
            path = bench.place / "core" / "src" / name
            whole = path.read_text(encoding="utf-8")
            path.write_text(whole[:begin] + text + whole[end:], encoding="utf-8")
            line = whole.count("\n", 0, begin) + 1
            if bench.compile(path):
                bench.link()
                verdict = bench.judge(args.seeds, args.timeout_s)
                source = whole.splitlines()[line - 1].strip()
                results.append(
                    {"file": name, "line": line, "from": whole[begin:end], "to": text,
                     "source": source, "killed_by": verdict}
                )
                mark = "killed" if verdict else "SURVIVED"
                print(f"{mark:8} {name}:{line} {whole[begin:end]} -> {text}   {source}", flush=True)
            path.write_text(whole, encoding="utf-8")
            bench.compile(path)
    killed = sum(1 for result in results if result["killed_by"])
    share = 100 * killed / max(1, len(results))
    print(f"{killed} of {len(results)} mutants killed ({share:.0f} %)")
    if args.json:
        args.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
