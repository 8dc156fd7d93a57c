# SPDX-License-Identifier: Apache-2.0
"""The seeds whose scenarios find broken rules, by test.

A test that searches tries the seed in ``tests/sim/first_seeds.json`` first, so that it need not run
all seeds before that one.  A test that finds another seed notes it.  After the generator has
changed, run the tests of broken rules with PENSTOCK_SEARCH=1, which tries all seeds up to 2000, and
then ``python tests/support/first_seeds.py``, which copies the noted seeds to the file.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
KEPT: Final = ROOT / "tests" / "sim" / "first_seeds.json"
NOTED: Final = ROOT / "build" / "first-seeds"


@functools.cache
def _all_kept() -> dict[str, int]:
    found: dict[str, int] = json.loads(KEPT.read_text(encoding="utf-8"))
    return found


def _test() -> str:
    """The test that runs, as pytest names it."""
    return os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0].removeprefix("tests/sim/")


def kept() -> int | None:
    """The seed that has found the broken rule of the test that runs."""
    return _all_kept().get(_test())


def kept_first(seeds: Iterable[int]) -> Iterator[int]:
    """The kept seed, then the other seeds."""
    first = kept()
    if first is not None:
        yield first
    yield from (seed for seed in seeds if seed != first)


def note(seed: int) -> None:
    """Note the seed that the test that runs has found."""
    if seed != kept():
        NOTED.mkdir(parents=True, exist_ok=True)
        with (NOTED / str(os.getpid())).open("a", encoding="utf-8") as file:
            file.write(json.dumps([_test(), seed]) + "\n")


def main() -> None:
    """Copy the noted seeds to the file."""
    seeds = _all_kept()
    for path in sorted(NOTED.glob("*")):
        for line in path.read_text(encoding="utf-8").splitlines():
            test, seed = json.loads(line)
            seeds[test] = seed
            print(test, seed)
        path.unlink()
    text = json.dumps(seeds, indent=1, sort_keys=True, ensure_ascii=False)
    KEPT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
