# SPDX-License-Identifier: Apache-2.0
"""How publisher, sender and reader of one local stream wake each other, step by step.

Each step is one access to shared memory, and any thread may take the next.  An exclusive
publisher's plain stores wait in its CPU's buffer and reach memory in order, at any time (x86; a
locked access or a fence empties the buffer first).  ``explore`` goes through every order there is.
What the sender decides by time or by count (a stream is hot, is quiet, the thread is idle) it may
decide at any time.  No timer ever comes to the rescue.

The names are those of ps_client_publication.h, ps_client.c, ps_client_image.c, ps_sender.c,
ps_sender_hot.c, ps_publication_limit.c and ps_driver_run.c (docs/decisions/0020).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

NOT, DATA, CHECK, HOT = range(4)
NEVER = 99


class Rules(NamedTuple):
    """What is explored; each flag that is False leaves out one part of the protocol."""

    messages: int = 2
    window: int = 2
    publishers: int = 1           #: more than one: a shared publication
    dirty: int = NOT              #: at the start; DATA: a mark that the sender did not see yet
    adopted: bool = False         #: at the start: a new daemon adopts what the old daemon left
    full: bool = False            #: at the start: one message was delivered and not yet released
    fence: bool = True            #: the publisher's, before its second check dirty
    barrier: bool = True          #: the sender's, when a stream cools
    wake_at_cooling: bool = True  #: readers are woken behind that barrier
    cool_to_park: bool = True     #: no stream stays hot while the sender sleeps
    check_when_parked: bool = True #: once more after parked was announced
    want_room: bool = True        #: the publisher says that it waits
    request: bool = True #: a reader that comes to wake_position asks the sender to look


class Publisher(NamedTuple):
    """One publishing thread."""

    at: str = "ticket"
    left: int = 0
    place: int = 0                #: shared: what the tail gave it
    moved: bool = False           #: its client's futex word, since its ticket


class World(NamedTuple):
    """All there is: shared memory, then each thread's own."""

    publishers: tuple[Publisher, ...]
    dirty: int = NOT
    bit: bool = False
    sender_parked: bool = True
    kicked: bool = False          #: the sender's eventfd
    tail: int = 0
    frames: int = 0               #: one bit each
    limit: int = 0
    position: int = 0             #: the reader's, released
    want_room: bool = False
    wake_at: int = NEVER
    buffer: str = ""              #: the exclusive publisher's stores: T(ail), F(rame)
    # reader
    reader: str = "ticket"
    delivered: int = 0
    reader_moved: bool = False
    # sender
    sender: str = "asleep"
    then: str = ""                #: where it goes on after waking the reader
    hot: bool = False
    hot_tail: int = 0
    work: bool = False
    parking: bool = True
    ready: bool = False
    watch: bool = False
    watching: bool = False        #: which update this is
    seen: int = 0
    producer: int = 0
    wake_next: int = NEVER


def start(rules: Rules) -> World:
    """Connected; the sender sleeps, unless the stream is hot."""
    there = int(rules.full)
    share = (rules.messages - there) // rules.publishers
    hot, notified = rules.dirty == HOT, rules.dirty == DATA
    if rules.adopted:  # add_publication; clients that re-attach are woken, as behind any barrier
        return World(
            publishers=tuple(Publisher(left=share) for _ in range(rules.publishers)),
            limit=rules.window, dirty=rules.dirty, sender="cool", then="turn",
            sender_parked=False, parking=False,
        )
    return World(
        publishers=tuple(Publisher(left=share) for _ in range(rules.publishers)),
        limit=rules.window,
        dirty=rules.dirty,
        bit=notified,
        kicked=notified,
        hot=hot,
        sender="bits" if hot else "asleep",
        sender_parked=not hot,
        parking=not hot,
        tail=there,
        hot_tail=there,
        frames=there,
        delivered=there,
        watch=rules.full,
    )


def is_done(world: World, rules: Rules) -> bool:
    """Everything was delivered."""
    return world.delivered == rules.messages


# ---- publishers --------------------------------------------------------------------------------


def drain(world: World) -> World:
    """The oldest store of the publisher's buffer reaches memory."""
    kind, rest = world.buffer[0], world.buffer[1:]
    if kind == "T":
        return world._replace(buffer=rest, tail=world.tail + 1)
    return world._replace(buffer=rest, frames=world.frames * 2 + 1)


def put(world: World, index: int, publisher: Publisher) -> World:
    """The world with another state of one publisher."""
    known = world.publishers
    return world._replace(publishers=(*known[:index], publisher, *known[index + 1 :]))


def publish(world: World, index: int, rules: Rules) -> Iterator[World]:
    """The next step of a publisher: none when it sleeps or is done."""
    it = world.publishers[index]
    if it.at in ("asleep", "done"):
        return

    def go(at: str, memory: World = world, **more: Any) -> World:
        return put(memory, index, it._replace(at=at, **more))

    following = "ticket" if it.left > 0 else "done"
    match it.at:
        case "ticket":
            yield go("offer", moved=False)
        case "offer" | "again":
            published = rules.messages - it.left if rules.publishers == 1 else world.tail
            if world.limit <= published:
                yield go("want" if it.at == "offer" else "sleep")
            elif rules.publishers == 1: # nobody sees these stores before they leave the buffer
                yield go("hot", world._replace(buffer=world.buffer + "TF"), left=it.left - 1)
            else:
                yield go("tail")
        case "tail":
            yield go("frame", world._replace(tail=world.tail + 1), left=it.left - 1,
                         place=world.tail)
        case "frame":
            yield go("hot", world._replace(frames=world.frames | 1 << it.place), place=0)
        case "hot":
            yield go(following if world.dirty == HOT else "look")
        case "look":
            if not world.buffer or not rules.fence:
                yield go(following if world.dirty in (DATA, HOT) else "mark")
        case _ if world.buffer:
            return  # what is below are locked accesses
        case "mark":
            yield go("bit" if world.dirty == NOT else following, world._replace(dirty=DATA))
        case "bit" | "request_bit":
            yield go("kick" if it.at == "bit" else "request_kick", world._replace(bit=True))
        case "kick" | "request_kick":
            yield go(following if it.at == "kick" else "again",
                     world._replace(kicked=world.kicked or world.sender_parked))
        case "want":
            yield go("ask", world._replace(want_room=rules.want_room))
        case "ask":
            if world.dirty == NOT:
                yield go("request_bit", world._replace(dirty=CHECK))
            else:
                yield go("again")
        case "sleep":
            yield go("ticket" if it.moved else "asleep")


# ---- the reader --------------------------------------------------------------------------------


def read(world: World, rules: Rules) -> Iterator[World]:
    """The next step of the reader."""

    def go(at: str, **more: Any) -> World:
        return world._replace(reader=at, **more)

    match world.reader:
        case "ticket":
            yield go("release" if world.position < world.delivered else "poll", reader_moved=False)
        case "release":
            yield go("wake_at", position=world.delivered)
        case "wake_at":
            yield go("ask" if rules.request and world.position >= world.wake_at else "poll")
        case "ask":
            yield go("request_bit", dirty=CHECK) if world.dirty == NOT else go("poll")
        case "request_bit":
            yield go("request_kick", bit=True)
        case "request_kick":
            yield go("poll", kicked=world.kicked or world.sender_parked)
        case "poll":
            if world.frames >> world.delivered & 1:
                yield go("ticket", delivered=world.delivered + 1)
            else:
                yield go("sleep")
        case "sleep":
            yield go("ticket" if world.reader_moved else "asleep")


def wake_reader(world: World) -> World:
    """Its futex word moves, it wakes if it sleeps."""
    at = "ticket" if world.reader == "asleep" else world.reader
    return world._replace(reader=at, reader_moved=True)


def wake_publishers(world: World) -> World:
    """The same for all that publish."""
    return world._replace(
        publishers=tuple(
            it._replace(at="ticket" if it.at == "asleep" else it.at, moved=True)
            for it in world.publishers
        )
    )


# ---- the sender --------------------------------------------------------------------------------


def turn(world: World, **more: Any) -> World:
    """On to run_ready and run_watched, as far as there is something to be done."""
    world = world._replace(**more)
    if world.ready:
        return world._replace(sender="tail", ready=False, watching=False)
    return watched(world)


def watched(world: World, **more: Any) -> World:
    """On to run_watched."""
    world = world._replace(**more)
    if world.watch:
        return world._replace(sender="tail", watching=True)
    return world._replace(sender="end", watching=False)


def goes_on(world: World) -> World:
    """After readers were woken."""
    then, world = world.then, world._replace(then="")
    return turn(world) if then == "turn" else world._replace(sender=then)


def collect(world: World, rules: Rules) -> Iterator[World]:
    """collect_dirty and ps_sender_check_hot."""

    def go(at: str, **more: Any) -> World:
        return world._replace(sender=at, **more)

    match world.sender:
        case "bits":
            yield go("dirty", bit=False) if world.bit else go("hot")
        case "dirty":
            notified = "hot" if world.dirty == CHECK else "wake"
            more: dict[str, Any] = {"dirty": NOT, "work": True, "ready": True, "watch": True}
            more["then"] = "hot" if notified == "wake" else ""
            if not world.hot:
                yield go(notified, **more)
            yield go("store_" + notified, **more)
        case "store_wake" | "store_hot":
            yield go(world.sender.removeprefix("store_"), dirty=HOT, hot=True)
        case "wake":
            yield goes_on(wake_reader(world))
        case "hot":
            yield turn(world)
            if world.hot and world.tail > world.hot_tail:
                yield go("wake", hot_tail=world.tail, watch=True, work=True, then="turn")
            if world.hot:
                yield go("cool", then="turn")
        case "cool":
            yield go("barrier", hot=False, dirty=NOT)
        case "barrier":
            while rules.barrier and world.buffer:
                world = drain(world)
            yield world._replace(sender="cooled")
        case "cooled":
            world = world._replace(hot_tail=world.tail, watch=True, ready=True)
            yield world._replace(sender="wake") if rules.wake_at_cooling else goes_on(world)


def update(world: World, rules: Rules) -> Iterator[World]:
    """run_ready and run_watched: ps_publication_update."""

    def go(at: str, **more: Any) -> World:
        return world._replace(sender=at, **more)

    match world.sender:
        case "tail":
            yield go("seen", producer=world.tail)
        case "seen":
            moved = world.position > world.seen
            raised = world.position + rules.window > world.limit
            yield go("limit" if raised else "wake_at", seen=world.position,
                     work=world.work or (moved and world.watching))
        case "limit":
            yield go("want", limit=world.seen + rules.window)
        case "want":
            yield go("clear" if world.want_room else "wake_at")
        case "clear":
            yield go("wake_publishers", want_room=False)
        case "wake_publishers":
            yield wake_publishers(world)._replace(sender="wake_at")
        case "wake_at":
            wake = NEVER
            if world.seen < world.producer:
                waited_for = world.producer >= world.limit or world.want_room
                wake = world.seen + (1 if waited_for else 2)
            yield go("store", wake_next=wake)
        case "store":
            more: dict[str, Any] = {"wake_at": world.wake_next, "wake_next": NEVER, "producer": 0}
            if world.watching:
                yield go("end", watch=world.seen < world.producer, watching=False, **more)
            else:
                yield watched(world, **more)


def sleep(world: World, rules: Rules) -> Iterator[World]:
    """The end of a duty cycle, park."""

    def go(at: str, **more: Any) -> World:
        return world._replace(sender=at, **more)

    match world.sender:
        case "end" if world.parking:
            yield go("unpark" if world.work or world.ready else "asleep")
        case "end":
            yield go("bits", work=False)
            if not world.work and world.hot and rules.cool_to_park:
                yield go("cool", then="bits")
            elif not world.work:
                yield go("has_bit" if rules.check_when_parked else "asleep", sender_parked=True,
                         parking=True)
        case "has_bit":
            yield go("unpark" if world.bit else "has_progress")
        case "has_progress":
            yield go("unpark" if world.watch and world.position >= world.wake_at else "bits")
        case "asleep":
            if world.kicked:
                yield go("unpark", kicked=False)
        case "unpark":
            yield go("bits", sender_parked=False, parking=False, work=False)


# ---- all of them -------------------------------------------------------------------------------


def steps(world: World, rules: Rules) -> Iterator[World]:
    """Every world that may come next."""
    if world.buffer:
        yield drain(world)
    for index in range(len(world.publishers)):
        yield from publish(world, index, rules)
    yield from read(world, rules)
    yield from collect(world, rules)
    yield from update(world, rules)
    yield from sleep(world, rules)


def explore(rules: Rules) -> tuple[int, World | None]:
    """How many worlds can be reached, and one of them, if any, that cannot come to the end."""
    first = start(rules)
    numbers = {first: 0}
    worlds = [first]
    before: list[list[int]] = [[]]
    done: list[int] = []
    for number, world in enumerate(worlds):
        if is_done(world, rules):
            done.append(number)
            continue
        for following in steps(world, rules):
            known = numbers.setdefault(following, len(worlds))
            if known == len(worlds):
                worlds.append(following)
                before.append([])
            before[known].append(number)
    hopeful = bytearray(len(worlds))
    while done:
        number = done.pop()
        if not hopeful[number]:
            hopeful[number] = 1
            done.extend(before[number])
    stuck = hopeful.find(0)
    return len(worlds), worlds[stuck] if stuck >= 0 else None
