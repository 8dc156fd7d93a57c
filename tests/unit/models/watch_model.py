# SPDX-License-Identifier: Apache-2.0
"""How wakers and a loop of events wake each other through one eventfd, step by step.

Each step is one access to shared memory or one system call, and any thread may take the next.  All
accesses are sequentially consistent, so there are no store buffers.  No timer comes to the rescue.

The names are those of ps_shared.c (``ps_wake_client_fenced``), ps_client.c (``ps_client_watch``)
and _async_parking.py (docs/decisions/0150).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple


class Rules(NamedTuple):
    """What is explored; each flag that is False leaves out one part of the protocol."""

    wakers: int = 2
    tasks: int = 2
    look_after_watch: bool = True     #: the word is compared once more behind the flag
    word_first: bool = True           #: a waker moves the word before it looks at the flag
    clear_before_write: bool = True   #: a waker clears the flag, then writes
    drain_before_fire: bool = True    #: the loop empties the eventfd, then ends the waits


class Waker(NamedTuple):
    at: str = "work"


class Task(NamedTuple):
    at: str = "ticket"
    ticket: int = 0


class World(NamedTuple):
    wakers: tuple[Waker, ...]
    tasks: tuple[Task, ...]
    done: int = 0           #: what the wakers made; a task waits for all of it
    word: int = 0
    watched: bool = False
    written: bool = False   #: the eventfd
    loop: str = "idle"
    writes: int = 0


def wake(world: World, index: int, rules: Rules) -> Iterator[World]:
    """The next step of a waker."""
    it = world.wakers[index]

    def go(at: str, **more: Any) -> World:
        changed = (*world.wakers[:index], Waker(at), *world.wakers[index + 1 :])
        return world._replace(wakers=changed, **more)

    match it.at:
        case "work":
            yield go("word" if rules.word_first else "look", done=world.done + 1)
        case "word":
            yield go("look" if rules.word_first else "end", word=world.word + 1)
        case "look":
            yield go(
                ("clear" if rules.clear_before_write else "write") if world.watched
                else ("end" if rules.word_first else "word")
            )
        case "clear":
            yield go("write" if world.watched else "end", watched=False)
        case "write" if rules.clear_before_write:
            yield go("end" if rules.word_first else "word", written=True, writes=world.writes + 1)
        case "write":
            yield go("late clear", written=True, writes=world.writes + 1)
        case "late clear":
            yield go("end", watched=False)


def wait(world: World, index: int, rules: Rules) -> Iterator[World]:
    """The next step of a task.  Only one task of a loop runs at a time, but between two of its
    steps the other threads may take any number."""
    it = world.tasks[index]

    def go(at: str, ticket: int = it.ticket, **more: Any) -> World:
        changed = (*world.tasks[:index], Task(at, ticket), *world.tasks[index + 1 :])
        return world._replace(tasks=changed, **more)

    match it.at:
        case "ticket":
            yield go("check", world.word)
        case "check":
            yield go("end" if world.done == rules.wakers else "watch")
        case "watch":
            yield go("compare" if rules.look_after_watch else "asleep", watched=True)
        case "compare":
            yield go("ticket" if world.word != it.ticket else "asleep")


def turn(world: World, rules: Rules) -> Iterator[World]:
    """The next step of the loop."""
    woken = tuple(
        it._replace(at="ticket") if it.at == "asleep" else it for it in world.tasks
    )
    match world.loop:
        case "idle" if world.written:
            if rules.drain_before_fire:
                yield world._replace(loop="fire", written=False)
            else:
                yield world._replace(loop="drain", tasks=woken)
        case "fire":
            yield world._replace(loop="idle", tasks=woken)
        case "drain":
            yield world._replace(loop="idle", written=False)


def steps(world: World, rules: Rules) -> Iterator[World]:
    """Every world that may come next."""
    for index in range(rules.wakers):
        yield from wake(world, index, rules)
    running = [i for i, it in enumerate(world.tasks) if it.at in ("check", "watch", "compare")]
    for index in running or range(rules.tasks):
        yield from wait(world, index, rules)
    if not running:
        yield from turn(world, rules)


def explore(rules: Rules) -> tuple[int, World | None, int]:
    """How many worlds there are; one that cannot end; the most writes of the eventfd."""
    first = World((Waker(),) * rules.wakers, (Task(),) * rules.tasks)
    worlds, seen, most = [first], {first}, 0
    for world in worlds:
        most = max(most, world.writes)
        following = list(steps(world, rules))
        if not following and any(it.at != "end" for it in world.tasks):
            return len(worlds), world, most
        for each in following:
            if each not in seen:
                seen.add(each)
                worlds.append(each)
    return len(worlds), None, most
