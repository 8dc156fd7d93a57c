# SPDX-License-Identifier: Apache-2.0
"""Policies of our publications towards Aeron's receivers, which know of none: what was offered is
what arrived and what was dropped, to the message."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.hosts import PenstockHost, penstock_host
from support.messages import digest, messages

import penstock
from interop import aeron, aeron_c
from interop.test_flow_control import eventually
from interop.test_streams import TERM_64K, arguments
from penstock import Gap, Offer

pytestmark = [
    pytest.mark.interop, pytest.mark.usefixtures("aeron_built", "aeron_c_built"),
]

TERM = 64 * 1024
SEVEN_EIGHTHS = 7 * TERM // 8
LONGEST = 1536
SEED, SIZES = 5, "500-1500"
HELD_AT = 20
OFFERS = 3000                           # forty terms
POLICIES = {
    "none": "",
    "block": "|ps-policy=block",
    "drop_newest": "|ps-policy=drop_newest",
    "drop_oldest": "|ps-policy=drop_oldest",
    "error": "|ps-policy=error",
    "rate_limit": "|ps-policy=rate_limit|ps-rate=100000msg",
}
DROPS = ("drop_newest", "drop_oldest")
WAITS = (Offer.BACK_PRESSURED, Offer.ADMIN_ACTION, Offer.RATE_LIMITED)


@pytest.fixture(params=["java", "c"])
def theirs(
    request: pytest.FixtureRequest, directories: Callable[[str], Path]
) -> Iterator[aeron.AeronHost]:
    host: contextlib.AbstractContextManager[aeron.AeronHost] = (
        aeron.aeron_host(directories("aeron")) if request.param == "java"
        else aeron_c.aeron_c_host(directories("aeron"))
    )
    with host as made:
        yield made


@pytest.fixture
def ours(directories: Callable[[str], Path]) -> Iterator[PenstockHost]:
    with penstock_host(directories("penstock")) as made:
        yield made


class Offering:
    """Offers numbered messages, and keeps those that were accepted."""

    def __init__(self, publication: penstock.Publication) -> None:
        self._publication = publication
        self._messages = messages(seed=SEED, sizes=SIZES, count=10 * OFFERS)
        self.accepted: list[bytes] = []
        self.dropped = 0

    @property
    def offered(self) -> int:
        return len(self.accepted) + self.dropped

    def offer(self, count: int) -> bool:
        """Offers so many messages; False: the publication made the caller wait, or failed."""
        for _ in range(count):
            message = next(self._messages)
            code = self._publication.offer(message)
            while code == Offer.ADMIN_ACTION:
                code = self._publication.offer(message)
            if code == Offer.DROPPED:
                self.dropped += 1
            elif code > 0:
                self.accepted.append(message)
            else:
                assert code in (*WAITS, Offer.FAILED)
                return False
        return True


class Counter:
    """A reader of our own beside Aeron's."""

    def __init__(self) -> None:
        self.delivered = self.missed = 0

    def on_gap(self, gap: Gap) -> None:
        assert gap.messages is not None
        self.missed += gap.messages

    def on_message(self, _message: memoryview, _header: object) -> None:
        self.delivered += 1


def check_full(offering: Offering, publication: penstock.Publication, policy: str) -> None:
    """An Aeron receiver has stopped: publishers that drop never wait, others do."""
    if policy not in DROPS:
        while offering.offer(OFFERS):
            pass
        assert publication.is_failed == (policy == "error")
        assert offering.dropped == 0
        return
    eventually(lambda: offering.offer(1) and offering.dropped > 0, "the log is full")
    assert offering.offer(OFFERS)
    pressure = publication.pressure()
    assert pressure.dropped_messages == offering.dropped
    assert dict(pressure.dropped_by) == {"log_full": offering.dropped}
    if policy == "drop_oldest":
        assert SEVEN_EIGHTHS <= pressure.peak_bytes <= SEVEN_EIGHTHS + LONGEST


@pytest.mark.parametrize("policy", POLICIES)
def test_aeron_gets_what_was_not_dropped(
    ours: PenstockHost, theirs: aeron.AeronHost, ports: Callable[[], int], policy: str
) -> None:
    """The publisher closes while the log is full; beside Aeron's a reader of our own counts."""
    control = f"control=127.0.0.1:{ports()}|control-mode=dynamic"
    stated = POLICIES[policy].split("|ps-rate")[0]

    def endpoint() -> str:
        return f"aeron:udp?{control}|endpoint=127.0.0.1:{ports()}"

    counter = Counter()
    held = (f"--hold-at={HELD_AT}", "--until-end=1")
    with (
        penstock.connect(ours.directory) as client,
        client.add_subscription(endpoint() + stated, 1001, on_gap=counter.on_gap) as reader,
        theirs.sub(*arguments(endpoint(), 10 * OFFERS, *held)) as sub,
    ):
        publication = client.add_publication(
            f"aeron:udp?{control}{TERM_64K}|fc=min,g:/2{POLICIES[policy]}", 1001
        )
        sub.wait("image")
        publication.wait_connected(30.0, receivers=2)
        offering = Offering(publication)

        def started() -> bool:
            reader.poll(counter.on_message, 64)
            return len(offering.accepted) == HELD_AT or (
                offering.offer(1) and len(offering.accepted) == HELD_AT
            )

        eventually(started, "the first messages")
        sub.wait("held")
        check_full(offering, publication, policy)
        publication.close()
        sub.say()

        def read_out() -> bool:
            reader.poll(counter.on_message, 64)
            return counter.delivered + counter.missed == offering.offered and not reader.images

        eventually(read_out, "our reader is told of every message")
        done = sub.wait("done")
        assert done["sha256"] == digest(offering.accepted)
        assert done["count"] == len(offering.accepted) == offering.offered - offering.dropped
        assert counter.missed >= offering.dropped
        assert policy == "drop_oldest" or counter.missed == offering.dropped
        assert sub.finish() == 0
