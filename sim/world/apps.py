# SPDX-License-Identifier: Apache-2.0
"""The scripted applications of a scenario. The production client opens and closes the streams of
these applications. C code publishes, polls and checks every message
(``sim/native/world/ps_sim_app.c``)."""

from __future__ import annotations

import random
from typing import Final, cast

from penstock.client._client import Client
from penstock.client._image import Image
from penstock.client._publication import Publication
from penstock.client._restart import Gap
from penstock.client._subscription import Subscription
from penstock.config import uri
from penstock.core.credits import CreditView, img_credits, pub_credit_counts
from penstock.sim.core import PublisherStatistics, ReaderStatistics, SimWorld
from penstock.sim.scenario import PublisherScript, SubscriberScript
from penstock.sim.world.host import Host

#: Id of the relay that publishes relayed streams.
_RELAY: Final = 1


def parse_credits(channel: str) -> tuple[int, int]:
    """Return the credits and the burst of credits that a subscription's channel states. A value
    that the channel does not state is 0.
    """
    parsed = uri.parse(channel)
    return parsed.ps_credits or 0, parsed.ps_credit_burst or 0


def parse_retention(channel: str) -> tuple[int, int]:
    """Return the limits on the data that a publication retains for its readers: a number of bytes,
    and an age in nanoseconds. 0: no limit."""
    parsed = uri.parse(channel)
    return parsed.ps_retention or 0, parsed.ps_retention_time_ns or 0


class Publisher:
    """A publishing application. If the host of the application crashes, a new application replaces
    the old one after the restart.
    """

    def __init__(
        self, script: PublisherScript, host: Host, native: SimWorld, rng: random.Random
    ) -> None:
        self.script = script
        self.ledgers: list[int] = []    # one for each session it had
        self.session_id = 0
        self._host = host
        self._native = native
        self._rng = rng
        self._apps: list[int] = []
        self._client: Client | None = None
        self._publication: Publication | None = None
        self._crashed = False

    @property
    def host(self) -> Host:
        return self._host

    @property
    def is_open(self) -> bool:
        return self._publication is not None

    @property
    def sent(self) -> int:
        """Number of messages that the application's publications have accepted, in all its
        sessions."""
        return sum(self._native.publisher(app).messages for app in self._apps)

    @property
    def at_end(self) -> bool:
        """Whether the application's stream is at the maximum position."""
        return bool(self._apps) and self._native.publisher(self._apps[-1]).at_end != 0

    @property
    def sent_bytes(self) -> int:
        return sum(self._native.publisher(app).bytes for app in self._apps)

    @property
    def position(self) -> int:
        """Position of its present session."""
        return self._native.ledger_position(self.ledgers[-1]) if self.ledgers else 0

    @property
    def limit(self) -> int:
        """Position up to which the application may publish now."""
        return 0 if self._publication is None else self._publication.position_limit

    def credit_counts(self) -> tuple[int, int] | None:
        """The messages up to which the readers have granted credits, and up to which publishers
        have used them; None: no reader grants credits."""
        publication = self._publication
        return None if publication is None else pub_credit_counts(publication._open())

    @property
    def finished(self) -> bool:
        if self._crashed:
            return not self.is_open     # its daemon has noticed
        return self.at_end or self.sent >= self.script.count

    def statistics(self) -> list[PublisherStatistics]:
        return [self._native.publisher(app) for app in self._apps]

    def open(self, now_ns: int) -> None:
        """Connect to the daemon and publish; after a crash, continue with the remaining
        messages."""
        left = self.script.count - self.sent
        self._client = self._host.connect("publisher")
        self._publication = cast(Publication, self._client._add_publication(
            self.script.channel, self.script.stream_id, None, None,
            exclusive=self.script.exclusive or self.script.relayed,
            relay_path=[_RELAY] if self.script.relayed else None,
        ))
        self.session_id = self._publication.session_id
        ledger = self._native.add_ledger(
            self.session_id, self.script.stream_id, self._rng.randrange(2**64)
        )
        if ledger not in self.ledgers:
            self.ledgers.append(ledger)
        self._native.set_retention(ledger, *parse_retention(self.script.channel))
        if self.script.reserved:
            self._native.reserve(ledger)
        self._apps.append(
            self._native.add_publisher(
                self._publication._open(),
                host=self._host.index,
                ledger=ledger,
                sizes=(self.script.size_low, self.script.size_high),
                count=left + self._native.ledger_messages(ledger),
                start_ns=max(self.script.start_ns, now_ns),
                interval_ns=self.script.interval_ns,
                claims=self.script.claims,
            )
        )

    def pause(self, paused: bool) -> None:
        if self._apps:
            self._native.pause_publisher(self._apps[-1], paused)

    def resume(self) -> None:
        """After a new daemon has started, repeat the offers that the publication refused while no
        daemon ran.
        """
        if self._apps and self._publication is not None:
            self._native.pause_publisher(self._apps[-1], False)

    def crash(self) -> None:
        """End the application as if it was killed in an offer. Its connection to the daemon closes
        at once, or later if the script delays the closing."""
        self._crashed = True
        if self._apps and self._publication is not None:
            self._native.kill_publisher(self._apps[-1])
        if self.script.hangup_ns == 0:
            self.close()

    def close(self) -> None:
        if self._publication is None or self._client is None:
            return
        self._native.detach_publisher(self._apps[-1])
        self._publication = None
        client, self._client = self._client, None
        client.close()


class Subscriber:
    """A receiving application. It polls after each event of its host. The simulator checks the
    received messages of each session.
    """

    def __init__(
        self, script: SubscriberScript, host: Host, native: SimWorld, number: int
    ) -> None:
        self.script = script
        self._number = number
        self.available: list[tuple[int, int]] = []  # (time, session) of images
        self.unavailable: list[tuple[int, int]] = []
        self.joined: dict[int, int] = {}    # position at which it joined a session last
        self._host = host
        self._native = native
        self._apps: list[int] = []
        self._client: Client | None = None
        self._subscription: Subscription | None = None
        self._dead = False              # and not noticed yet

    @property
    def host(self) -> Host:
        return self._host

    @property
    def is_open(self) -> bool:
        return self._subscription is not None

    @property
    def app(self) -> int | None:
        """Index of the running application; if no application runs, index of the last one; None: no
        application has run yet."""
        return self._apps[-1] if self._apps else None

    def reader(self, ledger: int) -> ReaderStatistics:
        """Progress of the present application in a session."""
        return self._native.reader(self._apps[-1], ledger)

    def readers(self, ledger: int) -> list[ReaderStatistics]:
        """Progress of the present application and of all applications that it replaced, in the
        order of their starts."""
        return [self._native.reader(app, ledger) for app in self._apps]

    @property
    def takes_gaps(self) -> bool:
        """Whether the stream may lose messages, so that gaps may be reported to the application.

        A subscription ignores ``ps-policy`` and ``ps-retention``. A script states one of them in a
        subscription's channel only for the simulator. The simulator then allows gaps to be reported
        to the application.
        """
        options = ("reliable=false", "ps-policy=drop", "ps-retention")
        return self.is_isolated or any(option in self.script.channel for option in options)

    @property
    def is_isolated(self) -> bool:
        """Whether the application is an *isolated* reader. The stream does not wait for such a
        reader, so the publisher may overwrite data that the reader has not read.
        """
        return uri.parse(self.script.channel).ps_sub_policy in ("independent", "drop_oldest")

    def is_at_end(self, session_id: int, ledger: int) -> bool:
        """Return whether the application has joined the session and reached the end of the sent
        data."""
        if self._subscription is None:
            return False
        end = self._native.ledger_position(ledger)
        # The image's own position: of a message that it joined in the middle nothing comes.
        return self.reader(ledger).position >= end or any(
            image.position >= end
            for image in self._subscription.images
            if image.session_id == session_id
        )

    def digest(self) -> bytes:
        """Return a hash over all received messages and their times."""
        return b"".join(self._native.digest(app).to_bytes(8, "little") for app in self._apps)

    def open(self) -> None:
        self.joined.clear()
        self._dead = False
        self._client = self._host.connect_shared("subscriber", self.script.client)
        self._subscription = self._client.add_subscription(
            self.script.channel,
            self.script.stream_id,
            on_available=self._on_available,
            on_unavailable=self._on_unavailable,
        )
        self._apps.append(
            self._native.add_subscriber(
                self._subscription._handle,
                host=self._host.index,
                stream_id=self.script.stream_id,
                poll_limit=self.script.poll_limit,
                poll_interval_ns=self.script.interval_ns,
                batch=self.script.batch,
                outstanding=max(parse_credits(self.script.channel)),
                pool=self.script.client or 1000 + self._number
                if "ps-credit-policy=" in self.script.channel else 0,
            )
        )
        if self.takes_gaps:
            self._native.allow_gaps(self._apps[-1])

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The most recent gaps that were reported to the present application."""
        return () if self._subscription is None else self._subscription.gaps

    def refresh(self) -> None:
        """Process the daemon's notices. The world calls this method after each turn of a conductor,
        and most turns bring no notice."""
        subscription = self._subscription
        if subscription is not None and (subscription._notices or subscription._handle is None):
            _ = subscription.images

    def pause(self, paused: bool) -> None:
        if self._apps and not self._dead:
            self._native.pause_subscriber(self._apps[-1], paused)

    def pace(self, interval_ns: int, batch: int) -> None:
        """Let the present application read at another interval and in other batches."""
        if self._apps and not self._dead:
            self._native.pace_subscriber(self._apps[-1], interval_ns=interval_ns, batch=batch)

    def withhold(self, frozen: bool) -> None:
        """If ``frozen`` is true, withhold the credits that the application grants through its
        images; otherwise, grant them again. This method calls the driver directly, because the
        simulator does not test how the control plane handles this request."""
        if self._subscription is None or self._dead or not self._host.running:
            return
        for image in self._subscription.images:
            self._host.set_credits(
                image._notice, parse_credits(self.script.channel), frozen=frozen
            )

    def credits(self) -> tuple[CreditView, ...]:
        """The credits of each image."""
        if self._subscription is None:
            return ()
        return tuple(img_credits(image._handle) for image in self._subscription.images)

    def credits_of(self, session_id: int) -> CreditView | None:
        """The credits of the present image of a session; None: there is no such image."""
        if self._subscription is None or self._dead:
            return None
        for image in self._subscription.images:
            if image.session_id == session_id:
                return img_credits(image._handle)
        return None

    def resume(self) -> None:
        """Process the notices that a new daemon has sent."""
        self.refresh()

    def crash(self) -> None:
        """End the application as if it was killed. The application's connection to the daemon
        closes at once, or later if the host's script delays the closing.
        """
        if self._host.script.hangup_ns == 0:
            self.close()
        elif self._subscription is not None:
            self._dead = True
            self._native.pause_subscriber(self._apps[-1], True)

    def close(self) -> None:
        """Close the application's client. When an application crashes, the simulator calls this
        method at the time at which the daemon notices the crash.
        """
        if self._subscription is None or self._client is None:
            return
        self._native.detach_subscriber(self._apps[-1])
        subscription, self._subscription = self._subscription, None
        client, self._client = self._client, None
        if not self._host.release_shared(client) and self._host.running:
            subscription.close()

    def _on_available(self, image: Image) -> None:
        self.available.append((self._host.now_ns, image.session_id))
        self.joined[image.session_id] = image.join_position
        self._native.expect_gap(self._apps[-1], image.session_id, self.script.stream_id)

    def _on_unavailable(self, image: Image) -> None:
        self.unavailable.append((self._host.now_ns, image.session_id))


def same_stream(publisher: PublisherScript, subscriber: SubscriberScript) -> bool:
    """Return whether the subscriber reads the publisher's stream."""
    return publisher.stream_id == subscriber.stream_id
