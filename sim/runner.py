# SPDX-License-Identifier: Apache-2.0
"""Run many seeds, and shrink failing scenarios."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

import attrs

from penstock.sim.generate.fuzz import generate, simpler
from penstock.sim.scenario import Scenario
from penstock.sim.world import run


@attrs.frozen(kw_only=True)
class Result:
    """One seed's run."""

    seed: int
    classes: tuple[str, ...]
    rules: tuple[str, ...]
    violations: tuple[str, ...]
    trace: str
    datagrams: int
    virtual_ns: int
    took_s: float


@attrs.frozen(kw_only=True)
class Summary:
    """Results of the runs of a range of seeds."""

    seeds: int
    failed: tuple[int, ...]
    datagrams: int
    virtual_s: float
    took_s: float
    histogram: dict[str, int]


def attempt(scenario: Scenario, seed: int) -> Result:
    """Run one seed; an exception counts as a violation."""
    started_s = time.perf_counter()
    try:
        report = run(scenario, seed)
        violations, trace, rules = report.violations, report.trace, report.rules
        datagrams, virtual_ns = report.network.sent, report.ended_ns
    except Exception as error:  # the finding is the exception, whichever it is
        violations, trace, rules = (f"{type(error).__name__}: {error}",), "", ()
        datagrams, virtual_ns = 0, 0
    return Result(
        seed=seed,
        classes=scenario.classes,
        rules=rules,
        violations=violations,
        trace=trace,
        datagrams=datagrams,
        virtual_ns=virtual_ns,
        took_s=time.perf_counter() - started_s,
    )


def sweep(start: int, seeds: int) -> Iterator[Result]:
    """Run the seeds from ``start`` on."""
    for seed in range(start, start + seeds):
        yield attempt(generate(seed), seed)


def summarise(results: list[Result]) -> Summary:
    counts = Counter(name for result in results for name in (*result.classes, *result.rules))
    return Summary(
        seeds=len(results),
        failed=tuple(result.seed for result in results if result.violations),
        datagrams=sum(result.datagrams for result in results),
        virtual_s=sum(result.virtual_ns for result in results) / 1e9,
        took_s=sum(result.took_s for result in results),
        histogram=dict(sorted(counts.items())),
    )


def kind_of(violations: tuple[str, ...]) -> str:
    """Return the text of a violation without its numbers, so that violations of the same kind have
    the same text."""
    text = "; ".join(violations)
    return "".join(letter for letter in text if not letter.isdigit() and letter != "-")


def shrink(
    scenario: Scenario,
    seed: int,
    *,
    fails: Callable[[Scenario], str] | None = None,
    tries: int = 200,
    within_s: float = 60,
) -> Scenario:
    """Find a simpler scenario that fails in the same way as ``scenario``. The search ends after
    ``tries`` attempts or ``within_s`` seconds, and returns the simplest such scenario that it has
    found. ``fails`` runs a scenario and returns the kind of its failure; "" if the scenario
    passes."""
    began_s = time.monotonic()
    name = fails if fails is not None else lambda s: kind_of(attempt(s, seed).violations)
    wanted = name(scenario)
    if not wanted:
        return scenario
    best = scenario
    while True:
        for candidate in simpler(best):
            tries -= 1
            if tries < 0 or time.monotonic() - began_s > within_s:
                return best
            if name(candidate) == wanted:
                best = candidate
                break
        else:
            return best
