# SPDX-License-Identifier: Apache-2.0
"""Credits that are withheld while daemons are killed: nothing is accepted until they are resumed.

A second stream of the same clients shows that the new daemons carry messages: when it delivers,
each daemon has adopted its streams, and status messages arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import attrs
import pytest
from support.hosts import PenstockHost
from support.patience import Patience

import penstock
from loopback.conftest import NewHost
from loopback.streams import PASSING, TIMEOUT_S, connected, eventually
from penstock import Client, Credits, Offer, Publication, Subscription
from penstock.client._withhold import set_withheld
from penstock.core.credits import CreditState, img_credits

STREAM = 1001
PROOF = 1002
NUMBER = 8
PROOFS = 50
#: Without credit, while there is no daemon, and until a new daemon hears of a receiver.
REFUSED = (Offer.NO_CREDIT, Offer.DAEMON_AWAY, Offer.NOT_CONNECTED)
VICTIMS = pytest.mark.parametrize("victims", ["near", "far", "near far"])


@attrs.frozen(kw_only=True)
class Stream:
    """A stream with credits and two publishers, and a stream without credits."""

    hosts: dict[str, PenstockHost]
    publications: tuple[Publication, ...]
    subscription: Subscription
    proof: tuple[Publication, Subscription]
    got: list[bytes] = attrs.field(factory=list)

    def take(self, message: penstock.Message, _header: object) -> None:
        self.got.append(bytes(message))

    def read(self) -> None:
        self.subscription.poll(self.take)

    def fill(self, most: int = 2 * NUMBER) -> int:
        """Offer until a refusal, but at most ``most`` for each publisher."""
        return sum(
            publication.offer(b"message") > 0 for publication in self.publications
            for _ in range(most)
        )

    def refuses(self) -> None:
        for publication in self.publications:
            code = publication.offer(b"withheld")
            assert code in REFUSED, code

    def restart(self, victims: str, *, refuses: bool = True) -> None:
        """Kill daemons, start them again, and carry messages over the other stream."""
        refused = self.refuses if refuses else lambda: None
        killed = {id(host): host for host in map(self.hosts.__getitem__, victims.split())}
        for host in killed.values():
            host.kill()
        refused()
        for host in killed.values():
            host.start()
            refused()
        publication, subscription = self.proof
        patience = Patience(TIMEOUT_S)
        came = 0
        while came < PROOFS:
            code = publication.offer(b"proof")
            assert code > 0 or code in (*PASSING, *REFUSED), code
            came += subscription.poll(lambda _m, _h: None)
            refused()
            assert not patience.is_over, f"{came} messages came"

    def states(self) -> list[CreditState]:
        return [
            CreditState(img_credits(image._handle).state) for image in self.subscription.images
        ]

    def settles(self) -> None:
        """Wait until each publisher has acknowledged the freeze."""
        both = [CreditState.SETTLED] * len(self.publications)
        eventually(lambda: self.states() == both, f"{self.states()} instead of settled")

    def resume(self) -> None:
        """Resume: each publisher has all its credits again, and its messages flow."""
        self.subscription.resume()
        before = len(self.got)
        wanted = NUMBER * len(self.publications)
        accepted = 0

        def spent() -> bool:
            nonlocal accepted
            accepted += self.fill()
            assert accepted <= wanted
            return accepted == wanted

        eventually(spent, "not all credits came back")
        assert self.fill() == 0

        def came() -> bool:
            self.read()
            return len(self.got) - before == wanted

        eventually(came, "the stream does not flow")


@pytest.fixture(params=["ipc", "unicast"])
def stream(
    request: pytest.FixtureRequest, new_host: NewHost, port: Callable[[], int]
) -> Iterator[Stream]:
    near = new_host()
    far = near if request.param == "ipc" else new_host()
    channel = "aeron:ipc?term-length=64k" if request.param == "ipc" else \
        f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with penstock.connect(near.directory, name="sender") as sender, \
            penstock.connect(far.directory, name="receiver") as receiver:
        yield _open({"near": near, "far": far}, channel, sender, receiver)


def _is_full(publication: Publication) -> bool:
    return publication.credits.available == NUMBER


def _open(
    hosts: dict[str, PenstockHost], channel: str, sender: Client, receiver: Client
) -> Stream:
    credits = Credits(NUMBER, handles=True)
    subscription = receiver.add_subscription(channel, STREAM, credits=credits)
    proof = receiver.add_subscription(channel, PROOF)
    shared = sender.add_publication(channel, STREAM)
    exclusive = sender.add_exclusive_publication(channel, STREAM)
    proving = sender.add_publication(channel, PROOF)
    connected(proving, proof)
    for publication in (shared, exclusive):
        connected(publication, subscription)
        eventually(partial(_is_full, publication), "no grant")
    return Stream(
        hosts=hosts, publications=(shared, exclusive), subscription=subscription,
        proof=(proving, proof),
    )


@VICTIMS
def test_a_freeze_outlives_a_daemon(stream: Stream, victims: str) -> None:
    sent = stream.fill()
    stream.subscription.withhold(TIMEOUT_S, stream.take)
    assert len(stream.got) == sent
    stream.restart(victims)
    stream.settles()
    stream.subscription.withhold(TIMEOUT_S, stream.take)
    stream.refuses()
    assert len(stream.got) == sent
    assert stream.subscription.credits.held == 0
    stream.resume()


@VICTIMS
@pytest.mark.parametrize("acknowledged", [True, False], ids=["acknowledged", "requested"])
def test_a_freeze_with_messages_in_flight_outlives_a_daemon(
    stream: Stream, victims: str, *, acknowledged: bool
) -> None:
    """The daemon dies while the application holds messages: before the senders have acknowledged
    the freeze, or after."""
    sent = stream.fill(NUMBER // 2)
    held = [stream.subscription.recv(TIMEOUT_S) for _ in range(sent)]
    set_withheld(stream.subscription, withheld=True)
    if acknowledged:
        stream.settles()
    stream.restart(victims, refuses=acknowledged)
    stream.settles()
    stream.refuses()
    for message in held:
        message.credit.release()
    stream.subscription.withhold(TIMEOUT_S, stream.take)
    stream.refuses()
    assert (len(held), stream.got) == (sent, [])
    stream.resume()


@VICTIMS
def test_a_stream_resumes_that_was_frozen_before_a_daemon_died(
    stream: Stream, victims: str
) -> None:
    """What was granted again is not taken back when a daemon dies."""
    stream.subscription.withhold(TIMEOUT_S, stream.take)
    stream.subscription.resume()
    stream.restart(victims, refuses=False)
    stream.resume()


def test_a_second_withhold_ends_too(stream: Stream) -> None:
    """Also without a resume: a withhold that does not end would let the publishers continue."""
    sent = 0
    for _round in range(3):
        sent += stream.fill()
        stream.subscription.withhold(TIMEOUT_S, stream.take)
        assert (stream.fill(), len(stream.got)) == (0, sent)
    stream.resume()
