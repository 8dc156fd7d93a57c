# SPDX-License-Identifier: Apache-2.0
"""Mutation test of the simulator's oracles.

Makes small wrong changes to the protocol core — a comparison turned or off by one, a limit or a
timer other than it is, a sum for a difference, a statement left out — builds each into an extension
of its own, in a tree of its own (only the changed object is compiled again), and runs generated
scenarios until an oracle notices.  Prints the kill rate and every survivor with its line.

    python tools/mutate.py --sample 60 --seeds 1000 --random 1
    python tools/mutate.py --only ps_gaps.c --seeds 200

The sample is drawn by a hash of each mutant's own text, so that an edit elsewhere does not change
it.  Left out are the refusals of wrong parameters (conditions that lead to ps_fail: the native
tests have them), assertions, system counters, and mutants
from which the compiler makes the same code.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import select
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import attrs

ROOT: Final = Path(__file__).resolve().parent.parent
FILES: Final = (
    "ps_publication_limit.c", "ps_publication_send.c", "ps_publication_control.c",
    "ps_publication_timer.c", "ps_publication_pace.c", "ps_publication_rate.c",
    "ps_publication_local.c", "ps_image.c", "ps_image_insert.c", "ps_image_nak.c",
    "ps_image_status.c", "ps_image_timers.c", "ps_image_pressure.c", "ps_nak.c", "ps_nak_rate.c",
    "ps_gaps.c", "ps_reordering.c", "ps_retransmit.c", "ps_flow_control.c", "ps_fc_min.c",
    "ps_fc_nak.c", "ps_congestion.c", "ps_cubic.c", "ps_pacer.c", "ps_rtt.c", "ps_destinations.c",
    "ps_sender.c", "ps_sender_control.c", "ps_receiver.c", "ps_receiver_dispatch.c",
    "ps_account.c", "ps_tether.c",
)
#: (kind, pattern, replacements): each match makes one mutant for each replacement; {} the match.
OPERATORS: Final = (
    ("comparison", r"(?<=\s)<=(?=\s)", ("<", ">")),
    ("comparison", r"(?<=\s)>=(?=\s)", (">", "<")),
    ("comparison", r"(?<=\s)<(?=\s)", ("<=", ">=")),
    ("comparison", r"(?<=\s)>(?=\s)", (">=", "<=")),
    ("comparison", r"(?<=\s)==(?=\s)", ("!=",)),
    ("comparison", r"(?<=\s)!=(?=\s)", ("==",)),
    ("comparison", r"(?<=\s)&&(?=\s)", ("||",)),
    ("comparison", r"(?<=\s)\|\|(?=\s)", ("&&",)),
    ("limit", r"\b[A-Z][A-Z_]*_(?:MAX|PARTS|LIMIT|BYTES|DATAGRAMS|WINDOW|MULTIPLE|SEGMENTS|BITS)\b",
     ("(2 * {})", "({} / 2)")),
    ("limit", r"(?<=[-+*/] )\d+(?=[;,)\s])", ("(2 * {})", "({} + 1)")),
    ("timer", r"\b(?:\w+(?:->|\.))*\w*(?:timeout|interval|delay|linger|after|retry|beat|TIMEOUT"
     r"|INTERVAL|TICK|RETRY|LOOK|IDLE|GRID|HOLD)\w*_(?:ns|NS)\b(?! =)", ("(4 * {})", "({} / 4)")),
    ("sum", r"(?<=[\w)] )\+(?= [\w(])", ("-",)),
    ("sum", r"(?<=[\w)] )-(?= [\w(])", ("+",)),
    ("flag", r"(?<== )true(?=;)", ("false",)),
    ("flag", r"(?<== )false(?=;)", ("true",)),
    ("dropped", r"(?<=\n)    +(?:\(void\))?(?!ps_system_add)[a-z][\w>.\[\]-]*"
     r"(?: [-+|]?= [^;{}]+|\([^;{}]*\));(?=\n)", (";",)),
)
CFLAGS: Final = ("-std=gnu11", "-UNDEBUG", "-O1", "-fPIC", "-fvisibility=hidden", "-w")
_SILENCE_S: Final = 120.0


@attrs.frozen
class Mutant:
    """One wrong change."""

    file: str
    begin: int
    end: int
    kind: str
    old: str
    new: str
    line: int
    source: str

    def rank(self, salt: int) -> str:
        """Its place in a sample."""
        text = f"{salt} {self.file} {self.source} {self.kind} {self.old} {self.new}"
        return hashlib.sha256(text.encode()).hexdigest()


def strip(text: str) -> str:
    """The text with comments, strings, preprocessor lines, assertions and refusals blanked."""

    def blank(match: re.Match[str]) -> str:
        return "".join("\n" if letter == "\n" else " " for letter in match[0])

    text = re.sub(r"/\*.*?\*/", blank, text, flags=re.DOTALL)
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', blank, text)
    text = re.sub(r"\bassert\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\);", blank, text)
    text = re.sub(r"^[ \t]*#.*$", blank, text, flags=re.MULTILINE)
    text = re.sub(r"\(void\)\w+;", blank, text)
    return re.sub(r"\bif \([^{}]*\) \{\s*(?:free\(\w+\);\s*)?return ps_fail\([^{}]*\}", blank, text)


def mutants(path: Path) -> list[Mutant]:
    """Every mutant of a file; of equal changes in equal lines the first."""
    whole = path.read_text(encoding="utf-8")
    code = strip(whole)
    lines = whole.splitlines()
    found: dict[str, Mutant] = {}
    for kind, pattern, replacements in OPERATORS:
        for match in re.finditer(pattern, code):
            line = whole.count("\n", 0, match.start()) + 1
            for text in replacements:
                column = match.start() - whole.rfind("\n", 0, match.start())
                mutant = Mutant(
                    path.name, match.start(), match.end(), kind, match[0].strip(),
                    text.replace("{}", match[0].strip()), line,
                    f"{lines[line - 1].strip()} @{column}",
                )
                found.setdefault(mutant.rank(0), mutant)
    return list(found.values())


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
        ignored = shutil.ignore_patterns("*.so", "__pycache__", "_core.c")
        shutil.copytree(ROOT / "core", self.place / "core", ignore=ignored)
        names = ("client", "config", "daemon", "sim", "spark_bridge")
        for name in names:
            shutil.copytree(ROOT / name, self.place / name, ignore=ignored)
        self.package.mkdir(parents=True)
        for path in (ROOT / "penstock").iterdir():
            if path.suffix != ".so" and path.name != "__pycache__":
                (self.package / path.name).symlink_to(path)
        for name in ("core", *names):
            (self.package / name).symlink_to(self.place / name)
        for library in (ROOT / "penstock").glob("_*.so"):
            if not library.name.startswith("_core"):
                (self.package / library.name).symlink_to(library)
        self.objects.mkdir()
        subprocess.run(
            [self.python, "-c", "from build_core import ffibuilder as b; b.emit_c_code('_core.c')"],
            cwd=self.place / "core", check=True, stdout=subprocess.DEVNULL,
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

    def judge(self, start: int, seeds: int) -> str:
        """What noticed, "" when nothing did.  A seed that takes for ever counts as noticed."""
        environment = {
            **os.environ, "PYTHONPATH": str(self.place / "package"), "PYTHONSAFEPATH": "1"
        }
        with subprocess.Popen(
            [self.python, "-c", _JUDGE, str(start), str(seeds)], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.place, bufsize=1,
        ) as process:
            assert process.stdout is not None
            verdict = "died"
            heard_s = time.monotonic()
            while True:
                ready, _, _ = select.select([process.stdout], [], [], 1.0)
                if not ready and time.monotonic() - heard_s > _SILENCE_S:
                    process.kill()
                    return "time-out"
                if not ready:
                    continue
                heard_s = time.monotonic()
                line = process.stdout.readline()
                if not line:
                    break
                verdict = line.strip()
            process.wait()
            return "" if verdict == "fine" else verdict


_JUDGE: Final = """
import sys
from penstock.sim.runner import sweep
for result in sweep(int(sys.argv[1]), int(sys.argv[2])):
    if result.violations:
        sys.exit(print(f"seed {result.seed}: {result.violations[0]}") or 1)
    print(f"seed {result.seed}: died", flush=True)
print("fine")
"""


def examine(bench: Bench, mutant: Mutant, start: int, seeds: int) -> str | None:
    """What noticed; None: the compiler makes the same code of it, or refuses it."""
    path = bench.place / "core" / "src" / mutant.file
    built = bench.objects / f"{path.stem}.o"
    whole = path.read_text(encoding="utf-8")
    before = built.read_bytes()
    try:
        path.write_text(
            whole[: mutant.begin] + mutant.new + whole[mutant.end :], encoding="utf-8"
        )
        if not bench.compile(path) or built.read_bytes() == before:
            return None
        bench.link()
        return bench.judge(start, seeds)
    finally:
        path.write_text(whole, encoding="utf-8")
        built.write_bytes(before)


def draw(args: argparse.Namespace) -> list[Mutant]:
    names = (args.only,) if args.only else FILES
    every = [mutant for name in names for mutant in mutants(ROOT / "core/src" / name)]
    return sorted(every, key=lambda mutant: mutant.rank(args.random))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sample", type=int, default=0, help="so many mutants; 0: all")
    parser.add_argument("--seeds", type=int, default=1000, help="until killed")
    parser.add_argument("--start", type=int, default=1, help="the first seed")
    parser.add_argument("--random", type=int, default=1, help="seed of the choice")
    parser.add_argument("--only", default="", help="only this file")
    parser.add_argument("--lines", default="", help="only these: file:line,file:line")
    parser.add_argument("--again", type=Path, help="only what survived in these results")
    parser.add_argument("--json", type=Path, help="write the results here")
    args = parser.parse_args()
    todo = draw(args)
    if args.lines:
        todo = [m for m in todo if f"{m.file}:{m.line}" in args.lines.split(",")]
    if args.again:
        left = {
            (r["file"], r["source"], r["old"], r["new"])
            for r in json.loads(args.again.read_text(encoding="utf-8")) if not r["killed_by"]
        }
        todo = [m for m in todo if (m.file, m.source, m.old, m.new) in left]
    print(f"{len(todo)} mutants to choose from", flush=True)
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="penstock-mutants-") as place:
        bench = Bench(Path(place), sys.executable)
        if verdict := bench.judge(args.start, 50):
            print(f"the unchanged core fails: {verdict}", file=sys.stderr)
            return 2
        for mutant in todo:
            if args.sample and len(results) == args.sample:
                break
            noticed = examine(bench, mutant, args.start, args.seeds)
            if noticed is None:
                continue
            results.append({**attrs.asdict(mutant), "killed_by": noticed})
            mark = "killed" if noticed else "SURVIVED"
            print(
                f"{mark:8} {mutant.file}:{mutant.line} {mutant.old} -> {mutant.new}   "
                f"{mutant.source}   {noticed}", flush=True,
            )
    killed = sum(1 for result in results if result["killed_by"])
    print(f"{killed} of {len(results)} mutants killed "
          f"({100 * killed / max(1, len(results)):.0f} %)")
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
