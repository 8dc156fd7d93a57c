# SPDX-License-Identifier: Apache-2.0
r"""Mutation test of the simulator's oracles, or of native tests.

Makes small wrong changes to the protocol core — a comparison turned or off by one, a limit or a
timer other than it is, a sum for a difference, a statement left out — builds each into an extension
of its own (only the changed object is compiled again), and runs generated scenarios until an oracle
notices: the first few seeds for all, then the others for those that are left.

    python tools/mutate.py --sample 100 --seeds 1000 --random 1
    python tools/mutate.py --only ps_gaps.c --seeds 200
    python tools/mutate.py --again build/mutants.json --start 61 --seeds 940
    python tools/mutate.py --claims --seeds 60
    python tools/mutate.py --sample 80 --random 0x$(git rev-parse --short=8 HEAD) \
        --only ps_bands.c,ps_governor.c --native test_bands,test_governor

With --native, programs of tests/native judge the mutants in place of seeds.

The sample is drawn by a hash of each mutant's own text, so that an edit elsewhere does not change
it.  Left out are the refusals of wrong parameters (conditions that lead to ps_fail: the native
tests have them), assertions, system counters, and mutants from which the compiler makes the same
code.  Those in equivalent_mutants.toml are part of the sample, counted apart and not run; --claims
runs just these: whatever is killed there is wrongly listed.
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import attrs
from mutant_bench import Bench
from mutant_native import NativeBench
from mutants import ListError, Mutant, equivalent, every

Verdicts = dict[tuple[str, str, str, str], str | None]


class Judge(Protocol):
    """Seeds or native tests."""

    def judge(self, start: int, seeds: int, /) -> str:
        """What fails without a mutant, "" nothing."""

    def examine(self, mutant: Mutant, start: int, seeds: int, /) -> str | None:
        """What noticed the mutant, "" nothing; None: it is the same code, or none."""


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sample", type=int, default=0, help="so many mutants; 0: all")
    parser.add_argument("--first", type=int, default=60, help="seeds of the first turn")
    parser.add_argument("--seeds", type=int, default=1000, help="until killed, both turns")
    parser.add_argument("--start", type=int, default=1, help="the first seed")
    parser.add_argument(
        "--random", type=lambda text: int(text, 0), default=1, help="seed of the choice"
    )
    parser.add_argument("--without", default="", help="not these seeds: 1,2")
    parser.add_argument("--jobs", type=int, default=1, help="so many at once, 2 at most")
    parser.add_argument("--only", default="", help="only these files: file,file")
    parser.add_argument("--lines", default="", help="only these: file:line,file:line")
    parser.add_argument("--again", type=Path, help="go on with these results")
    parser.add_argument("--claims", action="store_true", help="only those listed as equivalent")
    parser.add_argument("--native", default="", help="judged by these: program,program")
    parser.add_argument("--json", type=Path, help="write the results here")
    return parser.parse_args()


def earlier(path: Path) -> Verdicts:
    """What earlier results say: by key what killed it, "" nothing."""
    return {
        (r["file"], r["function"], r["before"], r["after"]):
            r["by"] if r["verdict"] == "killed" else ""
        for r in json.loads(path.read_text(encoding="utf-8"))
    }


def draw(args: argparse.Namespace, known: list[Mutant]) -> list[Mutant]:
    """All that may be requested, in the order of the sample."""
    todo = sorted(known, key=lambda mutant: mutant.rank(args.random))
    if args.only:
        todo = [mutant for mutant in todo if mutant.file in args.only.split(",")]
    if args.lines:
        todo = [m for m in todo if f"{m.file}:{m.line}" in args.lines.split(",")]
    if args.again:
        before = earlier(args.again)
        todo = [mutant for mutant in todo if mutant.key in before]
    return todo


class Run:
    """Verdicts of a sample: by key what killed it, "" nothing, None the same code."""

    def __init__(self, benches: list[Judge], listed: dict[tuple[str, str, str, str], str]) -> None:
        self.benches: queue.SimpleQueue[Judge] = queue.SimpleQueue()
        for bench in benches:
            self.benches.put(bench)
        self.jobs = len(benches)
        self.listed = listed
        self.verdicts: Verdicts = {}
        self.lock = threading.Lock()

    def _one(self, mutant: Mutant, start: int, seeds: int) -> None:
        bench = self.benches.get()
        try:
            verdict = bench.examine(mutant, start, seeds)
        finally:
            self.benches.put(bench)
        with self.lock:
            self.verdicts[mutant.key] = verdict
            if verdict is not None:
                mark = "killed" if verdict else f"left after {start + seeds - 1}"
                print(f"{mark:15} {mutant}   {verdict}", flush=True)

    def turn(self, todo: list[Mutant], start: int, seeds: int) -> None:
        with ThreadPoolExecutor(self.jobs) as pool:
            for done in [pool.submit(self._one, mutant, start, seeds) for mutant in todo]:
                done.result()

    def sample(self, todo: list[Mutant], size: int, start: int, seeds: int) -> list[Mutant]:
        """The first turn: as many of ``todo`` as make a sample of ``size``."""
        taken: list[Mutant] = []
        for mutant in todo:
            if size and len(taken) >= size:
                break
            taken.append(mutant)
            if len(taken) == size or mutant is todo[-1]:
                fresh = [m for m in taken if m.key not in self.listed
                         and m.key not in self.verdicts]
                self.turn(fresh, start, seeds)
                taken = [m for m in taken if self.verdicts.get(m.key, "") is not None]
        return taken


def make_bench(args: argparse.Namespace, place: Path) -> Judge:
    """Native tests if some are named, else seeds."""
    if args.native:
        return NativeBench(place, args.native.split(","))
    return Bench(place, sys.executable, args.without)


def report(sample: list[Mutant], run: Run, write: Callable[[str], object] = print) -> None:
    """The figures, and every survivor."""
    kinds = [_verdict(mutant, run) for mutant in sample]
    killed, survived = kinds.count("killed"), kinds.count("survived")
    for mutant, kind in zip(sample, kinds, strict=True):
        if kind == "survived":
            write(f"SURVIVED {mutant}")
    write(
        f"{len(sample)} mutants: {killed} killed, {survived} survived, "
        f"{kinds.count('equivalent')} equivalent; "
        f"{100 * killed / max(1, killed + survived):.1f} % of those that are not equivalent"
    )


def _verdict(mutant: Mutant, run: Run) -> str:
    if mutant.key in run.listed:
        return "equivalent"
    return "killed" if run.verdicts[mutant.key] else "survived"


def keep(path: Path, sample: list[Mutant], run: Run) -> None:
    results: list[dict[str, Any]] = [
        {
            **attrs.asdict(mutant), "verdict": _verdict(mutant, run),
            "by": run.verdicts.get(mutant.key) or run.listed.get(mutant.key, ""),
        }
        for mutant in sample
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1), encoding="utf-8")


def main() -> int:
    args = options()
    known = every()
    try:
        listed = equivalent(known)
    except ListError as error:
        print(error, file=sys.stderr)
        return 2
    todo = draw(args, known)
    if args.claims:
        todo, listed = [mutant for mutant in todo if mutant.key in listed], {}
    print(f"{len(todo)} mutants to choose from, {len(listed)} listed as equivalent", flush=True)
    with tempfile.TemporaryDirectory(prefix="penstock-mutants-") as place:
        benches = [
            make_bench(args, Path(place) / str(number))
            for number in range(max(1, min(2, args.jobs)))
        ]
        if verdict := benches[0].judge(args.start, args.first):
            print(f"the unchanged core fails: {verdict}", file=sys.stderr)
            return 2
        run = Run(benches, listed)
        if args.again:
            run.verdicts = {key: by for key, by in earlier(args.again).items() if by}
        first = min(args.first, args.seeds)
        sample = run.sample(todo, args.sample, args.start, first)
        if args.json:
            keep(args.json, sample, run)
        report(sample, run, lambda line: None if line.startswith("SURV") else print(line))
        left = [mutant for mutant in sample if _verdict(mutant, run) == "survived"]
        if args.seeds > first and not args.native:
            run.turn(left, args.start + first, args.seeds - first)
    report(sample, run)
    if args.json:
        keep(args.json, sample, run)
    return 1 if args.claims and any(run.verdicts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
