# SPDX-License-Identifier: Apache-2.0
"""Seeded mutation of a kept corpus, for the Python fuzz targets.

Without atheris a target runs by this alone: pieces of the corpus and of a dictionary are copied,
cut, joined and damaged.  The same seed gives the same inputs.
"""

from __future__ import annotations

import argparse
import random
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"


class Mutator:
    def __init__(self, seeds: Sequence[bytes], words: Sequence[bytes], *, seed: int) -> None:
        self._rng = random.Random(seed)
        self._seeds = list(seeds)
        self._words = list(words)

    def next(self) -> bytes:
        """One more input, at most about 4 KiB."""
        rng = self._rng
        data = bytearray(rng.choice(self._seeds))
        for _ in range(1 + int(rng.expovariate(0.5))):
            self._change(data)
        return bytes(data[:4200])

    def _change(self, data: bytearray) -> None:
        rng = self._rng
        at = rng.randint(0, len(data))
        what = rng.randrange(8)
        if what == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif what == 1 and data:
            data[at % len(data)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif what == 2:
            del data[at : at + rng.randint(1, 8)]
        elif what == 3:
            data[at:at] = rng.choice(self._words)
        elif what == 4:
            end = at + rng.randint(1, 12)
            data[at:end] = rng.choice(self._words)
        elif what == 5:
            data[at:at] = data[at : at + rng.randint(1, 32)]
        elif what == 6:
            other = rng.choice(self._seeds)
            cut = rng.randint(0, len(other))
            data[at:] = other[cut:]
        else:
            data[at:at] = rng.randbytes(rng.randint(1, 4))


def corpus(name: str) -> list[bytes]:
    """The kept inputs of a target, in a fixed order."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def run(
    target: Callable[[bytes], None], name: str, words: Sequence[bytes], *, runs: int, seed: int
) -> None:
    """The corpus itself, then ``runs`` mutations.  An exception of the target ends it, with the
    input in its notes."""
    seeds = corpus(name)
    mutator = Mutator(seeds, words, seed=seed)
    for number in range(len(seeds) + runs):
        data = seeds[number] if number < len(seeds) else mutator.next()
        try:
            target(data)
        except Exception as error:
            error.add_note(f"{name}: seed {seed}, run {number}, input {data!r}")
            raise


def main(target: Callable[[bytes], None], name: str, words: Sequence[bytes]) -> int:
    """The command line of a target."""
    parser = argparse.ArgumentParser(description=f"fuzz target {name}")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--atheris", action="store_true", help="coverage-guided, until stopped")
    args, rest = parser.parse_known_args()
    if args.atheris:
        import atheris  # the extra "fuzz"

        atheris.Setup([name, *rest, str(CORPUS / name)], target)
        atheris.Fuzz()
        return 0
    start = time.monotonic()
    try:
        run(target, name, words, runs=args.runs, seed=args.seed)
    except Exception:
        traceback.print_exc()
        return 1
    took_s = time.monotonic() - start
    print(f"{name}: {args.runs} runs from seed {args.seed} in {took_s:.0f} s: clean")
    return 0
