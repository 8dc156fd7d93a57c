# SPDX-License-Identifier: Apache-2.0
"""Pools of credits between real daemons: publishers of very different rates, over many divisions.

The simulator asks for exact divisions. Here the test reads the credits that each publisher has,
from the memory that the receiver shares with the client. It counts the messages too. They show
whether each publisher may use what the receiver granted.

The test goes by rounds of the pool, since a free run measures the machine: a publisher that the
machine leaves waiting sends less, whatever it was granted (1.3 to 7.6 % beside four busy loops). In
a round, each publisher sends until it has no credit. When all messages have arrived, the test
releases them together, and the round ends when the credits are back. A round on a busy machine
takes longer, and divides the same.

Shares differ by a whole credit, and the divisions pay back what rounding owes. So shares alternate
with time, and each round counts by its length. A round that the machine drew out counts as one
division. The fixed rates go by the same clock, so that they never need more credits a division than
on a quiet machine.

A free run follows. Its messages divide to 5 %, if the processes of the test need not wait for the
machine: round trips are part of what it measures.

Two publishers send as fast as they get credit. Three others send at fixed rates, and need less than
their shares. The publishers are on another host, so their weights travel in their SETUPs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
from support.patience import Patience

import penstock
from loopback.conftest import NewHost
from loopback.streams import PASSING, TIMEOUT_S, connected, eventually
from penstock import Credits, Image, Offer, Publication, Subscription
from penstock.core.credits import CreditView, img_credits

STREAM = 1001
CREDITS = 64
#: Messages a second; 0: all that the credits allow.
RATES = (10.0, 100.0, 300.0, 0.0, 0.0)
#: A division each 25 ms.
CONFIG = '[credits]\nidle_timeout_ns = "200ms"\n'
DIVISION_S = 0.025
#: A run lasts for so many divisions at least, and for so many rounds of the pool.
DIVISIONS = 200
ROUNDS = 1000


@attrs.define(kw_only=True)
class Stream:
    """One publisher, the credits that the pool granted it, and what it sent."""

    publication: Publication
    image: Image
    rate: float
    total: int = 0                      # messages since it joined
    sent: int = 0                       # messages of the run
    round_sent: int = 0                 # of these, in the running round
    round_credits: int = 0              # what it could send when the running round began
    granted: float = 0.0                # credits, multiplied by the seconds for which it had them
    used: float = 0.0                   # messages a round, multiplied by the seconds of the round

    @property
    def view(self) -> CreditView:
        return img_credits(self.image._handle)

    def send(self, clock_s: float) -> None:
        """Send what the rate asks for, or until the credits are used.  No other refusal ends this:
        a publisher of many messages meets the ends of terms more often."""
        self.round_credits = self.publication.credits.available
        self.round_sent = 0
        wanted = int(clock_s * self.rate) - self.sent if self.rate else 4 * CREDITS
        patience = Patience(TIMEOUT_S)
        while self.round_sent < wanted:
            result = self.publication.offer(b"message")
            if result == Offer.NO_CREDIT:
                break
            assert result > 0 or result in PASSING, result
            assert not patience.is_over, result
            self.round_sent += result > 0
        self.sent += self.round_sent
        self.total += self.round_sent

    def is_back(self) -> bool:
        """Whether it has as many credits as when the round began, or its new, lower share.  The
        receiver states a share that rose by less than a quarter with the next credits."""
        return self.publication.credits.available >= min(self.view.credits, self.round_credits)

    def missing(self, clock_s: float) -> float:
        return clock_s * self.rate - self.sent


def wait(happened: Callable[[], bool], subscription: Subscription) -> None:
    """Waits without a pause, so that rounds are shorter than divisions."""
    patience = Patience(TIMEOUT_S)
    while not happened():
        assert not patience.is_over, "a round does not end"
        subscription.wait(0.0)


def run(streams: list[Stream], subscription: Subscription, divisions: int, rounds: int) -> float:
    """Go by rounds, in each of which the streams send in a drawn order.

    :return: the clock of the run, in seconds.
    """
    chance = random.Random(1)
    order = list(streams)
    for stream in streams:
        stream.sent = 0
        stream.granted = stream.used = 0.0
    clock_s, rounds_done, before_s = 0.0, 0, time.monotonic()
    while clock_s < divisions * DIVISION_S or rounds_done < rounds:
        chance.shuffle(order)
        granted = {stream.image.session_id: stream.view.credits for stream in streams}
        for stream in order:
            stream.send(clock_s)
        wait(lambda: all(each.view.arrived >= each.total for each in streams), subscription)
        while subscription.poll(lambda _m, _h: None, len(streams) * CREDITS):
            pass
        busy = [stream for stream in streams if not stream.rate]
        wait(lambda of=busy: all(each.is_back() for each in of), subscription)
        now_s = time.monotonic()
        took_s = min(now_s - before_s, DIVISION_S)
        for stream in streams:
            stream.granted += granted[stream.image.session_id] * took_s
            stream.used += stream.round_sent * took_s
        before_s = now_s
        clock_s += took_s
        rounds_done += 1
    return clock_s


def run_freely(streams: list[Stream], subscription: Subscription) -> list[int]:
    """Serve the streams in a drawn order, as often as the machine can, for DIVISIONS.

    :return: the messages of each stream.
    """
    chance = random.Random(1)
    order = list(streams)
    sent = {stream.publication.session_id: 0 for stream in streams}
    began_s = time.monotonic()
    while (elapsed_s := time.monotonic() - began_s) < DIVISIONS * DIVISION_S:
        chance.shuffle(order)
        for stream in order:
            session = stream.publication.session_id
            wanted = int(elapsed_s * stream.rate) - sent[session] if stream.rate else 4 * CREDITS
            for _ in range(wanted):
                if stream.publication.offer(b"message") <= 0:
                    break
                sent[session] += 1
        while subscription.poll(lambda _m, _h: None, 256):
            pass
    return list(sent.values())


def image_of(subscription: Subscription, publication: Publication) -> Image:
    """Waits until a poll has found the image of a publication."""
    def found() -> list[Image]:
        subscription.poll(lambda _m, _h: None, 1)
        return [each for each in subscription.images if each.session_id == publication.session_id]

    eventually(lambda: bool(found()), "no image")
    return found()[0]


def unfairness(values: list[float], weights: tuple[int, int]) -> float:
    """The largest distance of a value from its part of the sum, by weight, in parts of this."""
    due = [sum(values) * weight / sum(weights) for weight in weights]
    return max(abs(value / of - 1.0) for value, of in zip(values, due, strict=True))


@pytest.mark.alone
@pytest.mark.parametrize(("policy", "weights"), [("round_robin", (1, 1)), ("weighted", (1, 3))])
def test_busy_publishers_divide_what_the_others_leave(
    policy: str, weights: tuple[int, int], new_host: NewHost, port: Callable[[], int],
    tmp_path: Path,
) -> None:
    """Credits and messages divide to 1 %, and the fixed rates are served. A free run divides to
    5 %, if the processes of the test have the machine."""
    config = tmp_path / "penstock.toml"
    config.write_text(CONFIG)
    near, far = new_host(), new_host("--config", str(config))
    channel = f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length=64k"
    with penstock.connect(near.directory) as sender, penstock.connect(far.directory) as receiver:
        subscription = receiver.add_subscription(
            channel, STREAM, credits=Credits(CREDITS, policy=policy)
        )
        streams = []
        for rate, weight in zip(RATES, (1, 1, 1, *weights), strict=True):
            publication = sender.add_exclusive_publication(
                f"{channel}|ps-credit-weight={weight}", STREAM
            )
            connected(publication, subscription)
            image = image_of(subscription, publication)
            streams.append(Stream(publication=publication, image=image, rate=rate))
        for stream in streams:
            eventually(lambda of=stream: of.publication.credits.granted > 0, "no grant")
        run(streams, subscription, 20, 0)
        clock_s = run(streams, subscription, DIVISIONS, ROUNDS)
        slow, busy = streams[:3], streams[3:]
        granted = [stream.granted for stream in busy]
        used = [stream.used for stream in busy]
        missing = [stream.missing(clock_s) for stream in slow]
        seen = f"granted {granted}, used {used}, missing {missing}, {clock_s} s"
        assert unfairness(granted, weights) <= 0.01, seen
        assert unfairness(used, weights) <= 0.01, seen
        # The clock of the last round is asked for in the next, and what one division asks for may
        # wait for a higher share.
        for stream in slow:
            assert stream.missing(clock_s) <= 2 * stream.rate * DIVISION_S + 1, seen
        patience = Patience(2 * DIVISIONS * DIVISION_S, exact=True)
        freely = run_freely(streams, subscription)[3:]
        # Else a publisher that the machine left waiting sends less.
        if patience.spent_s >= 0.9 * DIVISIONS * DIVISION_S:
            assert unfairness([float(each) for each in freely], weights) <= 0.05, freely
