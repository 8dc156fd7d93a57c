# SPDX-License-Identifier: Apache-2.0
"""Which outcomes of a few accesses ARMv8 allows: a small checker of its axiomatic memory model.

``allowed`` goes through every candidate execution of a litmus test (each write that a load may read
from, each order of the writes of a word) and keeps those of Arm's rules (Arm ARM B2.3;
``aarch64.cat``): accesses to one word are coherent, read-modify-writes are atomic, and the order
that all threads see has no cycle.  Dependencies between accesses are left out, so the checker
allows more than a processor does, never less.

``membarrier`` lies between any two accesses of each other thread: the outcome is allowed if it is
for one such place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

#: Outcomes: the value of each load, in the order of threads and of accesses.
Outcome = tuple[int, ...]
#: Pairs of numbers of events.
Order = set[tuple[int, int]]
#: Kinds of events that are no accesses.
FENCES = "FAB"


class Op(NamedTuple):
    """One operation of C11, ``F`` (a sequentially consistent or a release fence), ``A`` (an acquire
    fence) or ``B`` (membarrier)."""

    kind: str           #: W, R, X (read-modify-write that stores), F, A, B
    word: str = ""
    order: str = "rlx"  #: rlx, acq, rel, sc
    value: int = 0


class Event(NamedTuple):
    """One access of the processor."""

    thread: int
    kind: str           #: W, R, F (DMB ISH), A (DMB ISHLD), B
    word: str = ""
    value: int = 0
    order: str = ""     #: A: acquire; Q: acquire of LDAPR; L: release
    amo: int = 0        #: the same number: the two halves of a read-modify-write
    single: bool = False  #: one instruction (LSE), not a pair of exclusives


class Target(NamedTuple):
    """Instructions that the compiler may choose."""

    lse: bool = False   #: SWPAL, LDADDAL, CASAL in place of LDAXR and STLXR
    rcpc: bool = False  #: LDAPR for acquire loads in place of LDAR


TARGETS = (Target(), Target(lse=True), Target(lse=True, rcpc=True))


def compiled(thread: int, ops: tuple[Op, ...], target: Target) -> Iterator[Event]:
    """Translate operations as the compilers do (test_arm_model.py looks at their output)."""
    for number, op in enumerate(ops):
        match op.kind:
            case "W":
                release = "L" if op.order in ("rel", "sc") else ""
                yield Event(thread, "W", op.word, op.value, release)
            case "R":
                weak = "Q" if target.rcpc else "A"
                acquire = {"acq": weak, "sc": "A"}.get(op.order, "")
                yield Event(thread, "R", op.word, order=acquire)
            case "X":
                amo = thread * 100 + number + 1
                yield Event(thread, "R", op.word, 0, "A", amo, target.lse)
                yield Event(thread, "W", op.word, op.value, "L", amo, target.lse)
            case _:
                yield Event(thread, op.kind)


def _acyclic(count: int, edges: Order) -> bool:
    following: list[list[int]] = [[] for _ in range(count)]
    degree = [0] * count
    for before, after in edges:
        following[before].append(after)
        degree[after] += 1
    free = [number for number in range(count) if degree[number] == 0]
    for number in free:
        for after in following[number]:
            degree[after] -= 1
            if degree[after] == 0:
                free.append(after)
    return len(free) == count


def _barrier_ordered(events: list[Event], po: Order) -> Order:
    """Edges of dependencies on barriers: ``bob`` of the model."""
    found = set()
    for before, after in po:
        first, second = events[before], events[after]
        if first.kind in FENCES or second.kind in FENCES:
            continue
        fenced = any(
            (before, number) in po and (number, after) in po
            for number, event in enumerate(events)
            if event.kind in "FB" or (event.single and event.kind == "W")
            or (event.kind == "A" and first.kind == "R")
        )
        if (
            fenced or first.order in ("A", "Q") or second.order == "L"
            or (first.order == "L" and second.order == "A")
        ):
            found.add((before, after))
    return found


def _expedited(events: list[Event], po: Order) -> Iterator[Order]:
    """The edges of one membarrier, for each place in which it may meet the other threads."""
    callers = [number for number, event in enumerate(events) if event.kind == "B"]
    if not callers:
        yield set()
        return
    (caller,) = callers
    before = {a for a, b in po if b == caller}
    after = {b for a, b in po if a == caller}
    others: dict[int, list[int]] = {}
    for number, event in enumerate(events):
        if event.thread not in (-1, events[caller].thread):
            others.setdefault(event.thread, []).append(number)
    places = [range(len(numbers) + 1) for numbers in others.values()]
    for chosen in itertools.product(*places):
        edges: Order = set()
        for place, numbers in zip(chosen, others.values(), strict=True):
            edges |= set(itertools.product(numbers[:place], after))
            edges |= set(itertools.product(before, numbers[place:]))
            edges |= set(itertools.product(numbers[:place], numbers[place:]))
        yield edges


def _reads_from(events: list[Event]) -> Iterator[dict[int, int]]:
    loads = [number for number, event in enumerate(events) if event.kind == "R"]
    sources = [
        [w for w, event in enumerate(events) if event.kind == "W" and event.word == events[r].word]
        for r in loads
    ]
    for chosen in itertools.product(*sources):
        yield dict(zip(loads, chosen, strict=True))


def _coherences(events: list[Event]) -> Iterator[Order]:
    words = {event.word for event in events if event.kind == "W"}
    orders = []
    for word in sorted(words):
        writes = [n for n, e in enumerate(events) if e.kind == "W" and e.word == word]
        first, rest = writes[0], writes[1:]         # the initial write is listed first
        orders.append([(first, *order) for order in itertools.permutations(rest)])
    for chosen in itertools.product(*orders):
        yield {pair for order in chosen for pair in itertools.combinations(order, 2)}


def _allowed(events: list[Event], po: Order, rf: dict[int, int], co: Order) -> bool:
    count = len(events)
    read = {(w, r) for r, w in rf.items()}
    fr = {(r, later) for r, w in rf.items() for earlier, later in co if earlier == w}
    local = {(a, b) for a, b in po if events[a].word and events[a].word == events[b].word}
    if not _acyclic(count, local | read | co | fr):
        return False
    halves = {(a, b) for a, b in po if events[a].amo and events[a].amo == events[b].amo}
    for r, w in halves:
        if any((r, between) in fr and (between, w) in co for between in range(count)):
            return False
    seen = {(a, b) for a, b in read | co | fr if events[a].thread != events[b].thread}
    own = {(w, r) for w, r in read if events[w].amo and events[r].order in ("A", "Q")
           and events[w].thread == events[r].thread}
    ordered = seen | halves | own | _barrier_ordered(events, po)
    return any(_acyclic(count, ordered | edges) for edges in _expedited(events, po))


def outcomes(
    threads: tuple[tuple[Op, ...], ...], target: Target, initial: dict[str, int] | None = None
) -> set[Outcome]:
    """Return every outcome that the model allows.  All words are 0 at first, or as ``initial``."""
    words = sorted({op.word for ops in threads for op in ops if op.word})
    events = [Event(-1, "W", word, (initial or {}).get(word, 0)) for word in words]
    for thread, ops in enumerate(threads):
        events += compiled(thread, ops, target)
    po = {
        (a, b) for a, b in itertools.combinations(range(len(events)), 2)
        if events[a].thread == events[b].thread != -1
    }
    found = set()
    for rf in _reads_from(events):
        outcome = tuple(events[w].value for _, w in sorted(rf.items()))
        if outcome not in found and any(_allowed(events, po, rf, co) for co in _coherences(events)):
            found.add(outcome)
    return found
