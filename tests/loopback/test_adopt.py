# SPDX-License-Identifier: Apache-2.0
"""Daemons that are killed under load, and successors that go on where they stood.

What is compared is everything: the hash over all messages that were accepted against the hash over
all that came, so that a message that is missing, repeated or damaged fails the test.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.hosts import PenstockHost

import penstock
from loopback.streams import connected, eventually
from penstock import Client, Offer, Publication, Subscription

NewHost = Callable[..., PenstockHost]
STREAM = 1001
RESUME_S = 2.0
FIRST_S = 30.0
PAUSE_S = 0.0005


class Sender:
    """Publishes numbered messages for as long as it is let, from a thread of its own."""

    def __init__(self, publication: Publication, *, sizes: tuple[int, ...], seed: int = 1) -> None:
        self.publication = publication
        self.hash = hashlib.sha256()
        self.count = 0
        self._sizes = sizes
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            size = self._random.choice(self._sizes)
            message = (b"%016d" % self.count) + bytes([self.count % 251]) * size
            while (code := self.publication.offer(message)) <= 0:
                assert code in (
                    Offer.BACK_PRESSURED, Offer.ADMIN_ACTION, Offer.DAEMON_AWAY,
                    Offer.NOT_CONNECTED,
                ), Offer(code)
                if self._stop.wait(PAUSE_S):
                    return
            self.hash.update(message)
            self.count += 1
            if self.count % 16 == 0:
                time.sleep(PAUSE_S)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(FIRST_S)
        assert not self._thread.is_alive()


class Receiver:
    """Polls until it is stopped, from a thread of its own."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.hashes: dict[int, hashlib._Hash] = {}
        self.counts: dict[int, int] = {}
        self.wrong: list[str] = []
        self.sessions: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _take(self, message: memoryview, header: penstock.Header) -> None:
        session = header.session_id
        number = int(bytes(message[:16]))
        expected = self.counts.get(session, 0)
        if number != expected and len(self.wrong) < 5:
            self.wrong.append(f"session {session}: {number} came, {expected} was next")
        self.hashes.setdefault(session, hashlib.sha256()).update(message)
        self.counts[session] = number + 1

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                if not self.subscription.poll(self._take, 256):
                    self.subscription.wait(0.02)
        except BaseException as error:
            self.wrong.append(repr(error))
            raise

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(FIRST_S)
        assert not self._thread.is_alive()


def restart(host: PenstockHost, *args: str) -> float:
    """Kills the daemon, starts another, and returns when that one is ready: the time."""
    host.kill()
    host.start(*args)
    return time.monotonic()


def goes_on(receiver: Receiver, since: float) -> float:
    """Seconds from ``since`` until something new came."""
    before = receiver.count
    eventually(
        lambda: receiver.count > before or bool(receiver.wrong), "the stream goes on", FIRST_S
    )
    assert not receiver.wrong, receiver.wrong
    return time.monotonic() - since


def finish(senders: list[Sender], *receivers: Receiver) -> None:
    """Lets everything arrive, and compares."""
    for sender in senders:
        sender.stop()
    total = sum(sender.count for sender in senders)
    for receiver in receivers:
        eventually(
            lambda r=receiver: r.count >= total or bool(r.wrong),
            f"{total} messages were accepted: {receiver.counts}", FIRST_S,
        )
        receiver.stop()
        assert not receiver.wrong, receiver.wrong
        for sender in senders:
            session = sender.publication.session_id
            assert receiver.counts[session] == sender.count
            assert receiver.hashes[session].digest() == sender.hash.digest()
        assert receiver.subscription.gaps == ()
