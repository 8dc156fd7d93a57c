# SPDX-License-Identifier: Apache-2.0
"""Each pair of a store and a later load on which a wake-up depends holds on ARMv8, which orders
less than x86 does. So do the copies of isolated readers: a copy of bytes that were written over is
followed by a look that sees the mark. And the model knows the outcomes that are known of ARMv8."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from arm_model import FENCES, TARGETS, Op, Outcome, Target, outcomes
from support.not_run import need_command

ROOT = Path(__file__).parents[3]
FENCE, BARRIER = Op("F"), Op("B")
RELEASE, ACQUIRE = Op("F"), Op("A")     # fences


def store(word: str, order: str = "sc", value: int = 1) -> Op:
    return Op("W", word, order, value)


def load(word: str, order: str = "sc") -> Op:
    return Op("R", word, order)


def change(word: str, value: int = 1) -> Op:
    """A sequentially consistent read-modify-write."""
    return Op("X", word, "sc", value)


class Pair(NamedTuple):
    """Two sides, and the outcome in which neither sees the other."""

    sides: tuple[tuple[Op, ...], ...]
    lost: Outcome
    where: tuple[tuple[str, str], ...]  #: files of the core, and a text that they contain
    initial: dict[str, int] = {}        # noqa: RUF012  (nothing changes it)


#: A publisher: ps_pub_dirty.  1 in ``dirty``: the sender knows of data already, or HOT.
PUBLISHER = ("client/ps_client_publication.h", "atomic_thread_fence(memory_order_seq_cst);")
PARKED = ("driver/ps_driver_run.c", "parked, memory_order_seq_cst);")
WAKER = ("memory/ps_shared.c", "atomic_fetch_add_explicit(&slot->futex_word, 1, memory_order_seq")

MARKER = ("memory/ps_isolation.c", "atomic_thread_fence(memory_order_release);")
COPIER = ("client/ps_client_image_isolated.c",
          "atomic_thread_fence(memory_order_acquire);\n    return mark_of(image) > position;")

PAIRS = {
    "commit and dirty": Pair(
        ((store("frame", "rel"), FENCE, load("dirty")),
         (change("dirty", 0), FENCE, load("frame", "acq"))),
        (1, 1, 0), (PUBLISHER, ("sender/ps_sender.c", "/* flags before logs */")), {"dirty": 1}),
    "commit and dirty, looked at again": Pair(
        ((store("frame", "rel"), FENCE, load("dirty")),
         (store("dirty", value=0), FENCE, load("frame", "acq"))),
        (1, 0), (PUBLISHER, ("sender/ps_publication_subscribers.c",
                             "atomic_thread_fence(memory_order_seq_cst); /* dirty before the log"),
                 ), {"dirty": 1}),
    "commit and dirty of a hot stream": Pair(
        ((store("frame", "rel"), load("dirty", "rlx")),
         (store("dirty", value=0), BARRIER, load("frame", "acq"))),
        (1, 0), (("client/ps_client_publication.h", "atomic_signal_fence(memory_order_seq_cst);"),
                 ("sender/ps_sender_hot.c", "ps_barrier_run();")), {"dirty": 1}),
    "bit and parked": Pair(
        ((change("bit"), load("parked")), (store("parked"), FENCE, load("bit", "acq"))),
        (0, 0, 0), (("client/ps_client.c", "sender_parked, memory_order_seq_cst)"), PARKED)),
    "command and parked": Pair(
        ((store("ring", "rel"), FENCE, load("parked")),
         (store("parked"), FENCE, load("ring", "acq"))),
        (0, 0), (("agent/ps_agent.c", "atomic_thread_fence(memory_order_seq_cst);"), PARKED)),
    "word and waiting": Pair(
        ((change("word"), load("waiting")), (change("waiting"), load("word"))),
        (0, 0, 0, 0), (WAKER, ("client/ps_client.c", "&slot->waiting, 1, memory_order_seq_cst"))),
    "frame, word and ticket": Pair(
        ((store("frame", "rel"), FENCE, change("word")),
         (load("word", "acq"), load("frame", "acq"))),
        (0, 1, 0), (("sender/ps_publication_subscribers.c", "atomic_thread_fence("), WAKER)),
    "position and wake position": Pair(
        ((store("position"), load("wake")),
         (store("wake"), store("parked"), FENCE, load("position", "acq"))),
        (0, 0), (("client/ps_client_image.c", "position_cell, position, memory_order_seq_cst"),
                 ("sender/ps_publication_limit.c", "wake_position, wake, memory_order_seq_cst"))),
    "position and a mark that is there": Pair(
        ((store("position"), load("wake"), load("dirty")),
         (change("dirty", 0), FENCE, load("position", "acq"))),
        (0, 1, 1, 0), (("client/ps_client.c", "PS_DIRTY_CHECK,"),
                       ("sender/ps_sender.c", "/* flags before logs */")), {"dirty": 1}),
    "want of room and limit": Pair(
        ((store("want"), load("dirty"), load("limit", "acq")),
         (store("limit", "rel"), FENCE, load("want", "rlx"))),
        (0, 0, 0), (("client/ps_client_publication_open.c", "want_room, 1, memory_order_seq_cst"),
                    ("sender/ps_publication_limit.c", "atomic_thread_fence("))),
    "credits and their wake": Pair(
        ((change("returned"), load("wake")),
         (store("wake"), store("parked"), FENCE, load("returned"))),
        (0, 0, 0), (("client/ps_client_image_credit.c", "credits, memory_order_seq_cst"),
                    ("memory/ps_credit.c", "credit_wake, returned, memory_order_seq_cst"))),
    "credits with the position": Pair(
        ((store("returned", "rel"), store("position"), load("credit_wake")),
         (store("credit_wake"), store("parked"), FENCE, load("returned"))),
        (0, 0), (("client/ps_client_image_credit.c", "credit_wake, memory_order_seq_cst"),
                 ("memory/ps_credit.c", "credit_wake, returned, memory_order_seq_cst"))),
    "mark and copy": Pair(      # the receiver writes over the memory itself
        ((store("mark", "rel"), RELEASE, store("data", "rlx")),
         (load("data", "rlx"), ACQUIRE, load("mark", "acq"))),
        (1, 0), (MARKER, COPIER)),
    "mark, limit and copy": Pair(      # a publisher writes over memory below its new limit
        ((store("mark", "rel"), RELEASE, store("limit", "rel")),
         (load("limit", "acq"), store("data", "rlx")),
         (load("data", "rlx"), ACQUIRE, load("mark", "acq"))),
        (1, 1, 0), (MARKER, COPIER)),
    "hold and position": Pair(
        ((store("hold"), load("position")),
         (load("position", "acq"), FENCE, load("hold", "acq")), (store("position"),)),
        (0, 1, 0), (("driver/ps_image_api.c", "position_cell, memory_order_seq_cst"),
                    ("receiver/ps_image_idle.c", "atomic_thread_fence(memory_order_seq_cst);"))),
}


@pytest.mark.parametrize("target", TARGETS, ids=["v8.0", "lse", "rcpc"])
@pytest.mark.parametrize("name", PAIRS)
def test_no_side_misses_the_other(name: str, target: Target) -> None:
    pair = PAIRS[name]
    found = outcomes(pair.sides, target, pair.initial)
    assert pair.lost not in found
    assert len(found) > 1


@pytest.mark.parametrize("name", PAIRS)
def test_the_pair_is_that_of_the_source(name: str) -> None:
    for file, text in PAIRS[name].where:
        assert text in (ROOT / "core" / "src" / file).read_text(encoding="utf-8"), (file, text)


def weaker(ops: tuple[Op, ...], lacking: str) -> tuple[Op, ...]:
    """Drop fences and barriers, or the orders of accesses."""
    if lacking == "fences":
        return tuple(op for op in ops if op.kind not in FENCES)
    return tuple(
        Op("W" if op.kind == "X" else op.kind, op.word, "rlx", op.value)
        for op in ops if op.kind not in FENCES
    )


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "frame, word and ticket"])
def test_without_any_order_the_sides_miss_each_other(name: str) -> None:
    pair = PAIRS[name]
    sides = tuple(weaker(side, "orders") for side in pair.sides)
    loads = [op for side in pair.sides for op in side if op.kind in "RX"]
    lost = tuple(
        value for op, value in zip(loads, pair.lost, strict=True) if op.kind == "R"
    )
    assert lost in outcomes(sides, Target(), pair.initial)


@pytest.mark.parametrize("name", ["commit and dirty", "commit and dirty, looked at again",
                                  "commit and dirty of a hot stream", "command and parked",
                                  "mark and copy", "mark, limit and copy"])
def test_the_fences_are_needed(name: str) -> None:
    pair = PAIRS[name]
    sides = tuple(weaker(side, "fences") for side in pair.sides)
    assert pair.lost in outcomes(sides, Target(lse=True, rcpc=True), pair.initial)


def test_an_acquire_load_of_the_position_would_be_too_weak() -> None:
    """With LDAPR it may pass the store of the hold; LDAR may not."""
    _, *others = PAIRS["hold and position"].sides
    sides = ((store("hold"), load("position", "acq")), *others)
    lost = PAIRS["hold and position"].lost
    assert lost not in outcomes(sides, Target())
    assert lost in outcomes(sides, Target(lse=True, rcpc=True))


# ---- the model -----------------------------------------------------------------------------------

SB = tuple[tuple[Op, ...], tuple[Op, ...]]


def buffering(write: str, read: str, *between: Op) -> SB:
    return ((store("x", write), *between, load("y", read)),
            (store("y", write), *between, load("x", read)))


@pytest.mark.parametrize(("sides", "target", "outcome", "is_allowed"), [
    (buffering("rlx", "rlx"), Target(), (0, 0), True),
    (buffering("rel", "acq"), Target(), (0, 0), False),              # STLR, LDAR
    (buffering("rel", "acq"), Target(rcpc=True), (0, 0), True),      # STLR, LDAPR
    (buffering("rlx", "rlx", FENCE), Target(), (0, 0), False),
    (((store("x", "rlx"), store("y", "rlx")), (load("y", "rlx"), load("x", "rlx"))),
     Target(), (1, 0), True),
    (((store("x", "rlx"), store("y", "rel")), (load("y", "acq"), load("x", "rlx"))),
     Target(rcpc=True), (1, 0), False),
    (((store("x", "rlx"), FENCE, store("y", "rlx")), (load("y", "rlx"), ACQUIRE, load("x", "rlx"))),
     Target(), (1, 0), False),
    (buffering("rlx", "rlx", ACQUIRE), Target(), (0, 0), True),      # DMB ISHLD orders no store
    (((load("x", "rlx"), store("y", "rlx")), (load("y", "rlx"), store("x", "rlx"))),
     Target(), (1, 1), True),
    (((change("x"), load("y", "rlx")), (change("y"), load("x", "rlx"))),
     Target(lse=True), (0, 0, 0, 0), True),                          # SWPAL is no full barrier
    (((store("x", "rlx"), store("x", "rlx", 2)), (load("x", "rlx"), load("x", "rlx"))),
     Target(), (2, 1), False),
    (((change("x"),), (change("x", 2),)), Target(), (0, 0), False),
], ids=["SB", "SB+rel+acq", "SB+rcpc", "SB+dmb", "MP", "MP+rel+acq", "MP+dmb+dmb.ld", "SB+dmb.ld",
        "LB", "SB+swpal", "CoRR",
        "atomicity"])
def test_the_model_knows_what_is_known(
    sides: SB, target: Target, outcome: Outcome, is_allowed: bool
) -> None:
    assert (outcome in outcomes(sides, target)) == is_allowed


def test_the_compiler_chooses_these_instructions(tmp_path: Path) -> None:
    need_command("clang", "clang")
    assert shutil.which("clang")
    source = tmp_path / "accesses.c"
    source.write_text("""
        #include <stdatomic.h>
        void f(_Atomic int *a, int *out)
        {
            atomic_store_explicit(a, 1, memory_order_seq_cst);
            atomic_store_explicit(a, 2, memory_order_release);
            out[0] = atomic_exchange_explicit(a, 3, memory_order_seq_cst);
            atomic_thread_fence(memory_order_seq_cst);
            out[1] = atomic_load_explicit(a, memory_order_seq_cst);
            out[2] = atomic_load_explicit(a, memory_order_acquire);
        }
        void g(_Atomic int *a, int *out)
        {
            out[0] = atomic_load_explicit(a, memory_order_relaxed);
            atomic_thread_fence(memory_order_acquire);
            out[1] = atomic_load_explicit(a, memory_order_relaxed);
            atomic_thread_fence(memory_order_release);
            atomic_store_explicit(a, 1, memory_order_relaxed);
        }
    """, encoding="utf-8")
    for machine, exchange in (("armv8-a", ["ldaxr", "stlxr"]), ("armv8.1-a", ["swpal"])):
        text = subprocess.run(
            ["clang", "--target=aarch64-linux-gnu", f"-march={machine}", "-mno-outline-atomics",
             "-ffreestanding", "-O2", "-S", "-o", "-", str(source)],
            check=True, capture_output=True, text=True,
        ).stdout
        names = [words[0] for line in text.splitlines() if (words := line.split())]
        names = [name for name in names if name in ("dmb", "ldar", "ldapr", "ldaxr", "stlr",
                                                    "stlxr", "swpal")]
        assert names[:-3] == ["stlr", "stlr", *exchange, "dmb", "ldar"]
        assert names[-3] in ("ldar", "ldapr")
        fences = [words[1] for line in text.splitlines()
                  if (words := line.split())[:1] == ["dmb"]]
        assert fences == ["ish", "ishld", "ish"]
