# SPDX-License-Identifier: Apache-2.0
"""Scripted applications on the production client, and the oracle over what they receive."""

from __future__ import annotations

import hashlib
import random
import struct
from typing import Final, Protocol

from penstock.client._client import Client
from penstock.client._message import Header
from penstock.client._offer import Offer
from penstock.client._publication import Publication
from penstock.client._subscription import Subscription
from penstock.core.driver_types import NEVER_NS
from penstock.sim.host import Host
from penstock.sim.scenario import PublisherScript, SubscriberScript

_POLL_LIMIT: Final = 64
_ROTATIONS: Final = 4


class App(Protocol):
    """What the world asks of an application."""

    def next_action_ns(self) -> int: ...

    def act(self, now_ns: int) -> bool: ...

    def close(self) -> None: ...


class Publisher:
    """Offers message after message; what is refused is offered again at the next turn."""

    def __init__(self, script: PublisherScript, host: Host, rng: random.Random) -> None:
        self.script = script
        self.sent: list[bytes] = []
        self.session_id = 0
        self.position = 0
        self._host = host
        self._rng = rng
        self._client: Client | None = None
        self._publication: Publication | None = None
        self._next: bytes | None = None
        self._due_ns = script.start_ns
        self._refused_at: tuple[int, bool] | None = None
        self._started = False
        self._closed = False

    @property
    def finished(self) -> bool:
        return len(self.sent) == self.script.count

    def next_action_ns(self) -> int:
        """When it acts by itself; otherwise after each event of its host."""
        if self._publication is None and not self._closed:
            return self.script.open_ns
        if self._closed or self.finished or (self.script.interval_ns == 0 and self._started):
            return NEVER_NS
        return self._due_ns

    def act(self, now_ns: int) -> bool:
        """One turn.  Returns whether anything was published or opened."""
        if self._closed or self.finished or now_ns < self.script.open_ns:
            return False
        worked = False
        if self._publication is None:
            self._publication = self._open()
            worked = True
        self._started = now_ns >= self.script.start_ns
        while now_ns >= self._due_ns and not self.finished:
            if self._next is None:
                size = self._rng.randint(self.script.size_low, self.script.size_high)
                self._next = self._rng.randbytes(size)
            if not self._offer(self._publication, self._next):
                if self.script.interval_ns:
                    self._due_ns = now_ns + self.script.interval_ns
                break
            self.sent.append(self._next)
            self._next = None
            self._due_ns += self.script.interval_ns
            worked = True
        return worked

    def _offer(self, publication: Publication, message: bytes) -> bool:
        """Offers, but not again before what refused it has changed: a refused offer stirs the
        sender, and so would keep this moment from ending."""
        state = (publication.position_limit, publication.is_connected)
        if state == self._refused_at:
            return False
        position = publication.offer(message)
        for _ in range(_ROTATIONS):
            if position != Offer.ADMIN_ACTION:
                break
            position = publication.offer(message)
        if position <= 0:
            self._refused_at = state
            return False
        self._refused_at = None
        self.position = position
        return True

    def _open(self) -> Publication:
        self._client = self._host.connect("publisher")
        add = (
            self._client.add_exclusive_publication
            if self.script.exclusive
            else self._client.add_publication
        )
        publication = add(self.script.channel, self.script.stream_id)
        self.session_id = publication.session_id
        return publication

    def close(self) -> None:
        self._closed = True
        if self._publication is not None:
            self._publication.close()
        if self._client is not None:
            self._client.close()


class Subscriber:
    """Polls after each event of its host, and keeps what came, by session."""

    def __init__(self, script: SubscriberScript, host: Host) -> None:
        self.script = script
        self.received: dict[int, list[bytes]] = {}
        self.positions: dict[int, int] = {}
        self._host = host
        self._client: Client | None = None
        self._subscription: Subscription | None = None
        self._digest = hashlib.sha256()
        self._closed = False

    def next_action_ns(self) -> int:
        unopened = self._subscription is None and not self._closed
        return self.script.start_ns if unopened else NEVER_NS

    def act(self, now_ns: int) -> bool:
        """One turn.  Returns whether anything was received or opened."""
        if self._closed or now_ns < self.script.start_ns:
            return False
        if self._subscription is None:
            self._client = self._host.connect("subscriber")
            self._subscription = self._client.add_subscription(
                self.script.channel, self.script.stream_id
            )
            return True

        def take(message: memoryview, header: Header) -> None:
            payload = bytes(message)
            self.received.setdefault(header.session_id, []).append(payload)
            self._digest.update(struct.pack("<qqI", now_ns, header.position, len(payload)))
            self._digest.update(payload)

        count = self._subscription.poll(take, _POLL_LIMIT)
        for image in self._subscription.images:
            self.positions[image.session_id] = image.position
        return count > 0

    def digest(self) -> bytes:
        """Over everything received, and when."""
        return self._digest.digest()

    def close(self) -> None:
        self._closed = True
        if self._subscription is not None:
            self._subscription.close()
        if self._client is not None:
            self._client.close()


def same_stream(publisher: Publisher, subscriber: Subscriber) -> bool:
    """Whether the subscriber is to receive what the publisher sends."""
    mine, theirs = publisher.script, subscriber.script
    endpoint = theirs.channel.partition("|")[0]
    return mine.stream_id == theirs.stream_id and mine.channel.partition("|")[0] == endpoint


def finished(publishers: list[Publisher], subscribers: list[Subscriber]) -> bool:
    """Whether everything is sent and every subscriber has come to the end of it."""
    return all(publisher.finished for publisher in publishers) and all(
        subscriber.positions.get(publisher.session_id) == publisher.position
        for subscriber in subscribers
        for publisher in publishers
        if same_stream(publisher, subscriber)
    )


def violations(publishers: list[Publisher], subscribers: list[Subscriber]) -> list[str]:
    """What each subscriber should have, and has not: every message, once, in order."""
    found = []
    for number, subscriber in enumerate(subscribers):
        expected = {p.session_id: p.sent for p in publishers if same_stream(p, subscriber)}
        ends = {p.session_id: p.position for p in publishers}
        for session_id in sorted({*expected, *subscriber.received}):
            sent = expected.get(session_id, [])
            got = subscriber.received.get(session_id, [])
            wanted = sent
            at_end = subscriber.positions.get(session_id) == ends.get(session_id)
            if subscriber.script.may_join_late and at_end and len(got) < len(sent):
                wanted = sent[len(sent) - len(got) :]
            if got != wanted:
                pairs = enumerate(zip(wanted, got, strict=False))
                first = next((i for i, (a, b) in pairs if a != b), min(len(wanted), len(got)))
                found.append(
                    f"subscriber {number}, session {session_id}: {len(got)} of {len(sent)} "
                    f"messages, differs from message {first} on"
                )
    return found
