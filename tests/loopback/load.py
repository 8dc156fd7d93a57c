# SPDX-License-Identifier: Apache-2.0
"""Streams under load whose every message is accounted for: the hash over all that was accepted is
compared with the hash over all that came, so that a message that is missing, repeated or damaged
fails the test."""

from __future__ import annotations

import contextlib
import hashlib
import random
import threading
import time
from collections.abc import Iterator

from support.hosts import PenstockHost
from support.patience import Patience

import penstock
from loopback.streams import PASSING, eventually
from penstock import Client, Offer, Publication, Subscription

FIRST_S = 30.0
#: A busy machine takes long over the start of a daemon.
REATTACH_S = 120.0
PAUSE_S = 0.0005
REPEAT = (*PASSING, Offer.DAEMON_AWAY, Offer.NOT_CONNECTED)


class Sender:
    """Publishes numbered messages for as long as it is let, from a thread of its own."""

    def __init__(
        self, publication: Publication, *, sizes: tuple[int, ...], seed: int = 1, burst: int = 16
    ) -> None:
        self.publication = publication
        self.hash = hashlib.sha256()
        self.count = 0
        self.wrong = ""
        self._sizes = sizes
        self._burst = burst
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            size = self._random.choice(self._sizes)
            message = (b"%016d" % self.count) + bytes([self.count % 251]) * size
            while (code := self.publication.offer(message)) <= 0:
                if code not in REPEAT:
                    self.wrong = Offer(code).name
                    return
                if self._stop.wait(PAUSE_S):
                    return
            self.hash.update(message)
            self.count += 1
            if self.count % self._burst == 0:
                time.sleep(PAUSE_S)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(FIRST_S)
        assert not self._thread.is_alive()
        assert not self.wrong, self.wrong


class Receiver:
    """Polls until it is stopped, from a thread of its own."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.hashes: dict[int, hashlib._Hash] = {}
        self.counts: dict[int, int] = {}
        self.wrong: list[str] = []
        self.longest_pause_s = 0.0
        """Between two polls that found messages, by the clock: to be reported, not judged."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _take(self, message: memoryview, header: penstock.Header) -> None:
        session = header.session_id
        number = int(bytes(message[:16]))
        expected = self.counts.get(session, 0)
        if number != expected and len(self.wrong) < 5:
            self.wrong.append(
                f"session {session}: {number} came, {expected} was next, "
                f"told: {self.subscription.gaps}"
            )
        self.hashes.setdefault(session, hashlib.sha256()).update(message)
        self.counts[session] = number + 1

    def _run(self) -> None:
        before = 0.0
        try:
            while not self._stop.is_set():
                if not self.subscription.poll(self._take, 256):
                    self.subscription.wait(0.02)
                    continue
                now = time.monotonic()
                if before:
                    self.longest_pause_s = max(self.longest_pause_s, now - before)
                before = now
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


def goes_on(senders: list[Sender], receiver: Receiver) -> float:
    """Waits until messages come that are accepted from now on.  Returns seconds that the processes
    of the test could use."""
    patience = Patience(FIRST_S, exact=True)
    before = sum(sender.count for sender in senders)
    eventually(
        lambda: receiver.count > before or bool(receiver.wrong), "the stream goes on", FIRST_S
    )
    assert not receiver.wrong, receiver.wrong
    return patience.spent_s


def stand(senders: list[Sender], receiver: Receiver) -> str:
    """Where each side is, for whoever has to find out why they are apart."""
    lines = [
        f"sent {s.publication.session_id}: {s.count} to {s.publication.position}, "
        f"{s.publication.pressure()}, lost {s.publication.lost_sessions}" for s in senders
    ]
    lines += [f"read {i.session_id}: {receiver.counts.get(i.session_id)} to {i.position}"
              for i in receiver.subscription.images]
    return "\n".join([*lines, f"gaps: {receiver.subscription.gaps}"])


def finish(senders: list[Sender], *receivers: Receiver) -> None:
    """Lets everything arrive, and compares."""
    for sender in senders:
        sender.stop()
    total = sum(sender.count for sender in senders)
    for receiver in receivers:
        try:
            eventually(lambda r=receiver: r.count >= total or bool(r.wrong), "all arrives", FIRST_S)
        except AssertionError:
            raise AssertionError(stand(senders, receiver)) from None
        receiver.stop()
        assert not receiver.wrong, receiver.wrong
        for sender in senders:
            session = sender.publication.session_id
            assert receiver.counts[session] == sender.count
            assert receiver.hashes[session].digest() == sender.hash.digest()
        assert receiver.subscription.gaps == ()


@contextlib.contextmanager
def two_clients(sender: PenstockHost, receiver: PenstockHost) -> Iterator[tuple[Client, Client]]:
    at, to = sender.directory, receiver.directory
    with (
        penstock.connect(at, name="sender", reattach_timeout_s=REATTACH_S) as one,
        penstock.connect(to, name="receiver", reattach_timeout_s=REATTACH_S) as other,
    ):
        yield one, other
