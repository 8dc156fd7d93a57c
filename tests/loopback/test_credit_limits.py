# SPDX-License-Identifier: Apache-2.0
"""Limits of credits, measured as messages in flight: batches, bursts, and the receiver window."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
import pytest
from support.hosts import PenstockHost

import penstock
from loopback.streams import TIMEOUT_S, connected, eventually
from penstock import Credits, Offer, Publication, Subscription
from penstock.client._credit_options import CreditsGiven

STREAM = 1001
MESSAGE = b"x" * 1000
MEDIA = ("ipc", "unicast", "multicast")


@attrs.frozen
class Pair:
    """A publication and its reader, and what they counted."""

    publication: Publication
    subscription: Subscription
    arrived: Callable[[], int]          # the position that the reader's host has received
    count: dict[str, int] = attrs.field(factory=lambda: {"sent": 0, "read": 0})

    @property
    def in_flight(self) -> int:
        return self.count["sent"] - self.count["read"]

    def fill(self, message: bytes = b"message") -> int:
        """Offer until there is no credit; return the number of messages in flight."""
        while (code := self.publication.offer(message)) > 0 or code == Offer.ADMIN_ACTION:
            self.count["sent"] += code > 0
        assert code == Offer.NO_CREDIT, Offer(code)
        return self.in_flight

    def fills_to(self, number: int) -> None:
        """Wait for the credits of as many messages in flight, and use them."""
        wanted = number - self.in_flight
        eventually(lambda: self.publication.credits.available == wanted, f"not {wanted} credits")
        assert self.fill() == number

    def arrives(self) -> None:
        """Wait until the reader's host has all that was sent.

        A reader that has read all that has arrived may grant a burst again.
        """
        end = self.publication.position
        eventually(lambda: self.arrived() == end, "sent messages do not arrive")

    def read(self, number: int) -> None:
        """Read and release messages, without an offer meanwhile."""
        end = self.count["read"] + number

        def came() -> bool:
            self.count["read"] += self.subscription.poll(
                lambda _m, _h: None, end - self.count["read"]
            )
            return self.count["read"] == end

        eventually(came, "messages are missing")


Opens = Callable[[CreditsGiven], Pair]


@pytest.fixture(params=MEDIA)
def opens(
    request: pytest.FixtureRequest, host: PenstockHost, peer: PenstockHost,
    port: Callable[[], int],
) -> Iterator[Opens]:
    medium: str = request.param
    channel = {
        "ipc": "aeron:ipc?term-length=64k",
        "unicast": f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k",
        "multicast": f"aeron:udp?endpoint=239.20.0.9:{port()}|interface=127.0.0.1|term-length=64k",
    }[medium]
    far = host if medium == "ipc" else peer
    with penstock.connect(host.directory) as sender, penstock.connect(far.directory) as receiver:
        def opened(credits: CreditsGiven) -> Pair:
            subscription = receiver.add_subscription(channel, STREAM, credits=credits)
            publication = sender.add_publication(channel, STREAM)
            connected(publication, subscription)
            eventually(lambda: publication.credits.available > 0, "no grant arrived")

            def arrived() -> int:
                if medium == "ipc":
                    return publication.position
                (image,) = [row for row in receiver.status()["images"]
                            if row["session_id"] == publication.session_id]
                return int(image["high_water"])

            return Pair(publication, subscription, arrived)

        yield opened


def test_slack_of_10_with_bursts_of_100(opens: Opens) -> None:
    """A hundred at once while nothing is outstanding, else ten."""
    pair = opens(Credits(10, burst=100))
    for _ in range(3):
        pair.fills_to(100)
        pair.arrives()
        pair.read(89)
        assert pair.fill() == 11            # ten and more are outstanding: no credit came
        pair.read(2)
        pair.fills_to(10)
        for _ in range(5):
            pair.read(1)
            pair.fills_to(10)
        pair.read(10)


def test_a_batch_takes_no_more_than_there_are_credits(opens: Opens) -> None:
    pair = opens(7)
    batch = [b"%d" % number for number in range(20)]
    accepted = 0

    def full() -> bool:
        nonlocal accepted
        accepted += pair.publication.offer_batch(batch[accepted:]).accepted
        assert accepted <= 7
        return accepted == 7

    eventually(full, "not all credits were used")
    result = pair.publication.offer_batch(batch[accepted:])
    assert (result.accepted, result.position) == (0, Offer.NO_CREDIT)
    got: list[bytes] = []
    while len(got) < 20:
        pair.subscription.poll(lambda m, _h: got.append(bytes(m)))
        accepted += pair.publication.offer_batch(batch[accepted:]).accepted
        assert accepted - len(got) <= 7
    assert got == batch


@pytest.mark.parametrize("opens", ["unicast", "multicast"], indirect=True)
def test_credits_beyond_half_a_term_meet_the_receiver_window(opens: Opens) -> None:
    """A hundred messages of 1000 bytes do not fit into half of 64 KiB."""
    pair = opens(Credits(100, max_message=1000))
    sent = 0

    def stops() -> bool:
        nonlocal sent
        code = pair.publication.offer(MESSAGE)
        sent += code > 0
        assert code != Offer.NO_CREDIT
        return bool(code == Offer.BACK_PRESSURED) and \
            pair.publication.pressure().cause == "receiver_window"

    eventually(stops, "the window does not bind")
    assert pair.publication.credits.available == 100 - sent > 0
    pair.count["sent"] = sent
    pair.read(sent)
    eventually(lambda: pair.publication.offer(MESSAGE) > 0, "the stream does not continue",
               TIMEOUT_S)
