# SPDX-License-Identifier: Apache-2.0
"""Four hosts in a row, A to B to C to D: B and C relay, and the application on D pauses."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise

import pytest
from support.hosts import PenstockHost
from support.patience import Patience

import penstock
from cluster.network import Network
from penstock import Relay

pytestmark = pytest.mark.needs_root

Start = Callable[..., PenstockHost]
STREAM = 1001
PORT = 40456
TERM = 64 * 1024
WINDOW = TERM // 2
STAGES = 3
#: The source publishes so much a second until it is paused.
RATE = 128 * 1024
#: Of a message, and of what is on its way between two stages while the windows fill.
SLACK = TERM // 8
TIMEOUT_S = 60.0
QUIET = 200                             # rounds without progress: the chain is full


class Chain:
    """The source, which publishes, and the relays."""

    def __init__(self, publication: penstock.Publication, relays: list[Relay]) -> None:
        self.publication = publication
        self.relays = relays
        self.sent: list[bytes] = []
        self.clock: Patience | None = None      # since the source publishes at RATE
        self.paused: dict[int, int] = {}        # the source's position when a stage paused first
        self.is_paced = True

    def stages(self) -> list[penstock.Publication]:
        """Return the publications of the source and of the relays, as far as they exist."""
        return [self.publication, *(found for relay in self.relays for found in relay.publications)]

    def is_connected(self) -> bool:
        found = self.stages()
        return len(found) == STAGES and all(stage.is_connected for stage in found)

    def step(self) -> bool:
        """Offer and relay what is possible."""
        moved = [relay.step() for relay in self.relays]
        if self.is_paced:
            spent_s = self.clock.spent_s if self.clock is not None else 0.0
            for number, stage in enumerate(self.stages()):
                if stage.pressure().cause == "receiver_window":
                    self.paused.setdefault(number, self.publication.position)
            if self.publication.position >= RATE * spent_s:
                return any(moved)
        message = b"%d-" % len(self.sent) * 100
        if self.publication.offer(message) > 0:
            self.sent.append(message)
            return True
        return any(moved)

    def until(self, happened: Callable[[], bool], what: str) -> None:
        patience = Patience(TIMEOUT_S)
        while not happened():
            assert not patience.is_over, (what, self.publication.pressure())
            if not self.step():
                time.sleep(0.001)   # for the daemons

    def fill(self) -> None:
        """Publish at RATE until all stages are paused, which takes as long as the windows.

        The source's position is the clock: a stage pauses before the source published more than
        the windows behind it hold, however slow the machine is.
        """
        self.until(self.is_connected, "the chain is connected")
        self.paused.clear()
        self.clock = Patience(TIMEOUT_S, exact=True)
        self.until(lambda: len(self.paused) == STAGES, "all are paused")
        for number, position in self.paused.items():
            held = (STAGES - number) * 2 * WINDOW       # a log and an image for each stage
            assert position <= held + SLACK, self.paused
        self.is_paced = False


def test_the_first_publisher_names_the_application_that_pauses_behind_two_relays(
    lan: Network, start: Start
) -> None:
    hosts = [start(number) for number in range(4)]
    heard = [f"aeron:udp?endpoint={lan.address(number)}:{PORT}" for number in range(4)]
    got: list[bytes] = []
    with ExitStack() as stack:
        paused = stack.enter_context(penstock.connect(hosts[3].directory, name="slow app"))
        subscription = stack.enter_context(paused.add_subscription(heard[3], STREAM))
        relays: list[Relay] = [
            stack.enter_context(penstock.relay(
                heard[number], STREAM, f"{heard[number + 1]}|term-length=64k",
                name=f"relay-{number}", directory=str(hosts[number].directory),
            ))
            for number in (1, 2)
        ]
        client = stack.enter_context(penstock.connect(hosts[0].directory, name="source"))
        publication = stack.enter_context(
            client.add_publication(f"{heard[1]}|term-length=64k", STREAM)
        )
        chain = Chain(publication, relays)
        chain.fill()
        chain.until(lambda: publication.pressure().client == "slow app", "the culprit is named")
        pressure = publication.pressure()
        assert pressure.cause == "receiver_window"
        assert pressure.reason == "slow_subscriber"
        assert pressure.culprit.endswith(f"'slow app' on {socket.gethostname()}")
        assert lan.address(1) in pressure.culprit

        quiet = 0
        while quiet < QUIET:
            quiet = 0 if chain.step() else quiet + 1
            time.sleep(0.001)
        for stage in chain.stages():
            assert stage.pressure().cause == "receiver_window"
            assert stage.position <= stage.position_limit + TERM // 8
            assert stage.pressure().client == "slow app"
        positions = [stage.position for stage in chain.stages()]
        for before, behind in pairwise(positions):
            assert before - behind <= 2 * WINDOW + TERM // 8    # one log and one image
        assert positions[-1] <= 2 * WINDOW + TERM // 8

        count = len(chain.sent)

        def relieved() -> bool:
            subscription.poll(lambda message, header: got.append(bytes(message)), 100)
            return len(got) >= count

        chain.until(relieved, "everything arrives")
        assert subscription.gaps == ()
    assert got == chain.sent[: len(got)]
