# SPDX-License-Identifier: Apache-2.0
"""Streams that rest give memory back, to the file system and to the budget, and go on in the same
session when there is something to say again."""

from __future__ import annotations

import contextlib
import hashlib
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from support.hosts import PenstockHost
from support.patience import Patience

import penstock
from loopback.load import FIRST_S, PAUSE_S, REPEAT, Receiver
from loopback.streams import connected, eventually
from loopback.test_adopt import STREAM
from penstock import Client, Offer, Publication
from penstock.client._inspect import request_status

NewHost = Callable[..., PenstockHost]
MIB = 1 << 20
TERM = 4 * MIB
SLACK = 64 * 1024           # metadata, and the first page of each term


class Talker:
    """Publishes numbered messages in bursts, from the thread of the test."""

    def __init__(self, publication: Publication, *, sizes: tuple[int, ...], seed: int = 1) -> None:
        self.publication = publication
        self.hash = hashlib.sha256()
        self.count = 0
        self._sizes = sizes
        self._random = random.Random(seed)

    def say(self) -> None:
        message = (b"%016d" % self.count) + bytes([self.count % 251]) * self._random.choice(
            self._sizes
        )
        patience = Patience(FIRST_S)
        while (code := self.publication.offer(message)) <= 0:
            assert code in REPEAT, Offer(code).name
            assert not patience.is_over, Offer(code).name
            time.sleep(PAUSE_S)
        self.hash.update(message)
        self.count += 1

    def say_until(self, position: int) -> None:
        while self.publication.position < position:
            self.say()


def finish(talker: Talker, receiver: Receiver) -> None:
    """Everything came, in order, unchanged, in one session."""
    eventually(
        lambda: receiver.count >= talker.count or bool(receiver.wrong),
        f"{talker.count} messages were accepted: {receiver.counts}", FIRST_S,
    )
    receiver.stop()
    session = talker.publication.session_id
    assert not receiver.wrong, receiver.wrong
    assert receiver.counts == {session: talker.count}
    assert receiver.hashes[session].digest() == talker.hash.digest()
    assert receiver.subscription.gaps == ()


def memory(host: PenstockHost, kind: str) -> int:
    """What the logs of a kind take on the file system."""
    return sum(path.stat().st_blocks * 512 for path in (host.directory / kind).iterdir())


def holds_at_most(host: PenstockHost, kind: str, most: int) -> bool:
    return memory(host, kind) <= most


def accounted(host: PenstockHost) -> int:
    """What the daemon counts against its budget."""
    return int(request_status(host.directory, FIRST_S)["storage_used_bytes"])


@pytest.fixture
def restful(tmp_path: Path) -> Callable[[str], tuple[str, str]]:
    """Arguments of a daemon whose streams are idle after a time."""

    def arguments(idle: str) -> tuple[str, str]:
        config = tmp_path / f"idle-{idle}.toml"
        config.write_text(f'[storage]\nidle_term_timeout_ns = "{idle}"\n')
        return "--config", str(config)

    return arguments


@contextlib.contextmanager
def clients(near: PenstockHost, far: PenstockHost) -> Iterator[tuple[Client, Client]]:
    with penstock.connect(near.directory) as one, penstock.connect(far.directory) as other:
        yield one, other


@pytest.mark.parametrize("exclusive", [False, True])
def test_memory_shrinks_and_the_stream_goes_on(
    new_host: NewHost, port: Callable[[], int], exclusive: bool,
    restful: Callable[[str], tuple[str, str]],
) -> None:
    near, far = new_host(*restful("200ms")), new_host(*restful("200ms"))
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}"
    with clients(near, far) as (client, remote):
        add = client.add_exclusive_publication if exclusive else client.add_publication
        publication = add(f"{channel}|term-length=4m", STREAM)
        subscription = remote.add_subscription(channel, STREAM)
        connected(publication, subscription)
        talker = Talker(publication, sizes=(100, 9000, 60000))
        receiver = Receiver(subscription)
        # In a term's first quarter the term before may be requested again; at its end the next one
        # may be written.  Over there only the term in use may be read.
        for position in (13 * MIB, 27 * MIB):
            talker.say_until(position - 2 * TERM)
            talker.say_until(position)
            eventually(lambda: receiver.count == talker.count, "all of it came", FIRST_S)
            eventually(
                lambda: memory(near, "publications") <= 2 * TERM + SLACK,
                f"{memory(near, 'publications')} bytes are taken by a stream that rests", FIRST_S,
            )
            most = (1 if position % TERM < TERM // 2 else 2) * TERM + SLACK
            eventually(
                partial(holds_at_most, far, "images", most),
                f"{memory(far, 'images')} bytes are taken by an image that rests", FIRST_S,
            )
            assert accounted(near) <= 2 * TERM + SLACK
            assert accounted(far) <= most
        talker.say_until(45 * MIB)
        assert memory(near, "publications") > 2 * TERM + SLACK
        finish(talker, receiver)


def test_ipc_keeps_what_a_window_of_a_term_reaches(
    new_host: NewHost, restful: Callable[[str], tuple[str, str]]
) -> None:
    host = new_host(*restful("200ms"))
    with clients(host, host) as (client, other):
        publication = client.add_publication("aeron:ipc?term-length=4m", STREAM)
        subscription = other.add_subscription("aeron:ipc", STREAM)
        connected(publication, subscription)
        talker, receiver = Talker(publication, sizes=(10, 20000)), Receiver(subscription)
        for position in (13 * MIB, 29 * MIB):
            talker.say_until(position)
            eventually(
                lambda: memory(host, "publications") <= 2 * TERM + SLACK,
                f"{memory(host, 'publications')} bytes are taken by a stream that rests", FIRST_S,
            )
            eventually(lambda: accounted(host) <= 2 * TERM + SLACK, "the budget has it", FIRST_S)
        talker.say_until(45 * MIB)
        finish(talker, receiver)


@pytest.mark.parametrize("victim", ["sender", "receiver"])
def test_a_new_daemon_goes_on_with_what_is_there(
    new_host: NewHost, port: Callable[[], int], victim: str,
    restful: Callable[[str], tuple[str, str]],
) -> None:
    arguments = restful("200ms")
    near, far = new_host(*arguments), new_host(*arguments)
    dying, kind = (near, "publications") if victim == "sender" else (far, "images")
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}"
    with clients(near, far) as (client, remote):
        publication = client.add_publication(f"{channel}|term-length=4m", STREAM)
        subscription = remote.add_subscription(channel, STREAM)
        connected(publication, subscription)
        talker, receiver = Talker(publication, sizes=(100, 9000, 60000)), Receiver(subscription)
        talker.say_until(13 * MIB)
        eventually(lambda: receiver.count == talker.count, "all of it came", FIRST_S)
        eventually(
            lambda: memory(dying, kind) <= 2 * TERM + SLACK, "what is idle is given back", FIRST_S
        )
        taken = memory(dying, kind)
        dying.kill()
        dying.start(*arguments)
        talker.say_until(13 * MIB + 1)
        eventually(lambda: receiver.count == talker.count, "it goes on", FIRST_S)
        assert memory(dying, kind) <= taken + TERM
        talker.say_until(30 * MIB)
        finish(talker, receiver)


def test_deaths_while_terms_come_and_go(
    new_host: NewHost, port: Callable[[], int], restful: Callable[[str], tuple[str, str]]
) -> None:
    """Bursts and rests of about the idle time-out, and a daemon that dies in any of them."""
    arguments = restful("5ms")
    near, far = new_host(*arguments), new_host(*arguments)
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}"
    rng = random.Random(3)
    with clients(near, far) as (client, remote):
        publication = client.add_publication(f"{channel}|term-length=2m", STREAM)
        subscription = remote.add_subscription(channel, STREAM)
        connected(publication, subscription)
        talker, receiver = Talker(publication, sizes=(100, 9000, 60000)), Receiver(subscription)
        for victim in (near, far) * 4:
            for _ in range(6):
                talker.say_until(publication.position + rng.randrange(2 * MIB))
                time.sleep(rng.choice([0, 0.003, 0.02]))    # the rest itself, not a wait for it
            victim.kill()
            victim.start(*arguments)
            talker.say()
            eventually(
                lambda: receiver.count == talker.count or bool(receiver.wrong), "it goes on",
                FIRST_S,
            )
        finish(talker, receiver)
