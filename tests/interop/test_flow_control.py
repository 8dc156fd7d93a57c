# SPDX-License-Identifier: Apache-2.0
"""Flow and congestion control between our daemon and Aeron's media driver: each obeys what the
other says, though it knows nothing of the other's extensions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.hosts import PenstockHost, penstock_host
from support.messages import digest, messages
from support.patience import Patience
from support.processes import Peer

import penstock
from interop import aeron
from interop.test_streams import TERM_64K, AnyHost, arguments

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("aeron_built")]

Ports = Callable[[], int]
WINDOW = 32 * 1024                      # half of a 64k term: a receiver's and the publisher's
SEED, SIZES, COUNT = 5, "500-1500", 400
SENT = list(messages(seed=SEED, sizes=SIZES, count=COUNT))
PUBLISHED = (f"--seed={SEED}", f"--sizes={SIZES}")


@pytest.fixture
def theirs(directories: Callable[[str], Path]) -> Iterator[aeron.AeronHost]:
    with aeron.aeron_host(directories("aeron")) as made:
        yield made


@pytest.fixture
def ours(directories: Callable[[str], Path]) -> Iterator[PenstockHost]:
    with penstock_host(directories("penstock")) as made:
        yield made


def eventually(happened: Callable[[], bool], what: str) -> None:
    patience = Patience(30)
    while not happened():
        assert not patience.is_over, what
        time.sleep(0.01)


def offer(publication: penstock.Publication, pending: list[bytes], quiet_s: float) -> None:
    """Offers what is pending until all is taken, or nothing was for a while."""
    quiet: Patience | None = None
    while pending and (quiet is None or not quiet.is_over):
        if publication.offer(pending[0]) > 0:
            pending.pop(0)
            quiet = None
        else:
            quiet = quiet or Patience(quiet_s, exact=True)
            time.sleep(0.002)


def received_whole(*subs: Peer) -> None:
    for sub in subs:
        assert sub.wait("done")["sha256"] == digest(SENT)


def counters(directory: Path, label: str) -> list[int]:
    """Values of a driver's counters that are named so."""
    return [
        int(line.split(":")[1].split(" - ")[0].replace(",", ""))
        for line in aeron.aeron_stat(directory).splitlines() if f" - {label}" in line
    ]


# ---- congestion control --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("way", ["aeron-to-penstock", "penstock-to-aeron"])
def test_cubic_over_a_lossy_link(
    way: str, directories: Callable[[str], Path], ports: Ports
) -> None:
    """A receiver's cubic acts through its window alone, so any sender obeys it."""
    with (
        aeron.aeron_host(directories("aeron"), aeron.loss(0.03, seed=7)) as theirs,
        penstock_host(directories("penstock"), "--impair", "loss=3%,seed=7") as ours,
    ):
        sender: AnyHost = theirs
        receiver: PenstockHost | aeron.AeronHost = ours
        if way == "penstock-to-aeron":
            sender, receiver = ours, theirs
        channel = f"aeron:udp?endpoint=127.0.0.1:{ports()}"
        half = f"--hold-at={COUNT // 2}"
        with receiver.sub(*arguments(f"{channel}|cc=cubic", COUNT, half)) as sub:
            sub.wait("added")
            with sender.pub(*arguments(channel + TERM_64K, COUNT, *PUBLISHED)) as pub:
                sub.wait("held")
                (window,) = counters(receiver.directory, "rcv-cc-cubic-wnd")
                assert 2 * 1408 <= window <= WINDOW
                sub.say()
                received_whole(sub)
                assert pub.wait("done")["sha256"] == digest(SENT)
                assert pub.finish() == 0


# ---- our publisher, Aeron's receivers ------------------------------------------------------------


class Group:
    """A group of two Aeron receivers, the second of which stops reading at a message, and a
    publication of ours that offers until it is held."""

    def __init__(
        self, ours: PenstockHost, theirs: aeron.AeronHost, ports: Ports, fc: str, *more: str
    ) -> None:
        control = f"control=127.0.0.1:{ports()}|control-mode=dynamic"
        self._directory = ours.directory
        self._client = penstock.connect(ours.directory)
        self.subs = [
            theirs.sub(*arguments(
                f"aeron:udp?{control}|endpoint=127.0.0.1:{ports()}{tag}", COUNT, *hold
            ))
            for tag, hold in zip((*more, "", "")[:2], ((), ("--hold-at=20",)), strict=True)
        ]
        self.publication = self._client.add_publication(
            f"aeron:udp?{control}{TERM_64K}|fc={fc}", 1001
        )
        self.pending = list(SENT)

    def __enter__(self) -> Group:
        for sub in self.subs:
            sub.wait("image")
        return self

    def __exit__(self, *_error: object) -> None:
        for sub in self.subs:
            sub.stop()
        self._client.close()

    def wait_for(self, followed: int) -> None:
        """Until the strategy follows so many receivers."""
        eventually(lambda: counters(self._directory, "fc-receivers") == [followed], "followed")

    def fill(self) -> int:
        """Where it is held."""
        offer(self.publication, self.pending, 1.0)
        return self.publication.position

    def finish(self) -> None:
        """The stopped one goes on."""
        self.subs[1].say()
        offer(self.publication, self.pending, 10.0)
        assert not self.pending


#: Where it stops: behind twenty messages with their headers; those beyond 1376 bytes are in two.
STOPPED_AT = sum((len(m) + 63 + (32 if len(m) > 1376 else 0)) // 32 * 32 for m in SENT[:20])
ROOM = 2 * WINDOW + 1600                # the receiver's window, the publisher's, and one message


def test_under_min_the_slowest_aeron_receiver_sets_the_pace(
    ours: PenstockHost, theirs: aeron.AeronHost, ports: Ports
) -> None:
    with Group(ours, theirs, ports, "min,g:/2") as group:
        group.wait_for(2)
        assert group.fill() <= STOPPED_AT + ROOM
        group.finish()
        received_whole(*group.subs)


@pytest.mark.parametrize("name", ["tagged", "preferred"])
def test_an_aeron_receiver_with_the_tag_is_waited_for(
    ours: PenstockHost, theirs: aeron.AeronHost, ports: Ports, name: str
) -> None:
    with Group(ours, theirs, ports, f"{name},g:5/1", "", "|gtag=5") as group:
        group.wait_for(1)
        assert group.fill() <= STOPPED_AT + ROOM
        group.finish()
        received_whole(group.subs[1])       # nobody waits for the other


def test_an_aeron_receiver_without_the_tag_is_not_waited_for(
    ours: PenstockHost, theirs: aeron.AeronHost, ports: Ports
) -> None:
    with Group(ours, theirs, ports, "tagged,g:5/1", "|gtag=5", "") as group:
        group.wait_for(1)
        group.fill()
        assert not group.pending
        received_whole(group.subs[0])


def test_under_nak_a_receiver_that_cannot_signal_has_its_window(
    ours: PenstockHost, theirs: aeron.AeronHost, ports: Ports
) -> None:
    """Without PRESSURE there is nothing but the window, as under max; half a term is for those that
    signal."""
    channel = f"aeron:udp?endpoint=127.0.0.1:{ports()}"
    with (
        penstock.connect(ours.directory) as client,
        theirs.sub(*arguments(f"{channel}|rcv-wnd=16k", COUNT, "--hold-at=20")) as sub,
    ):
        sub.wait("added")
        with client.add_publication(f"{channel}{TERM_64K}|fc=nak", 1001) as publication:
            sub.wait("image")
            pending = list(SENT)
            offer(publication, pending, 1.0)
            assert publication.position <= STOPPED_AT + ROOM - WINDOW // 2
            assert publication.pressure().cause == "receiver_window"
            assert client.status()["publications"][0]["pressure_signals"] == 0
            sub.say()
            offer(publication, pending, 10.0)
            received_whole(sub)


# ---- Aeron's publisher, our receivers ------------------------------------------------------------


@pytest.mark.parametrize(("fc", "tags"), [
    ("min,g:/2", ("", "")), ("tagged,g:5/2", ("|gtag=5", "|gtag=5")),
    ("tagged,g:5/1", ("|gtag=5", "")),
])
def test_aeron_follows_our_receivers(
    ours: PenstockHost, theirs: aeron.AeronHost, ports: Ports, fc: str, tags: tuple[str, str]
) -> None:
    control = f"control=127.0.0.1:{ports()}|control-mode=dynamic"
    followed = len([tag for tag in tags if tag or fc.startswith("min")])
    subs = [
        ours.sub(*arguments(f"aeron:udp?{control}|endpoint=127.0.0.1:{ports()}{tag}", COUNT))
        for tag in tags
    ]
    with subs[0], subs[1]:
        for sub in subs:
            sub.wait("added")
        publisher = arguments(
            f"aeron:udp?{control}{TERM_64K}|fc={fc}", COUNT, *PUBLISHED, f"--pause-at={COUNT // 2}"
        )
        with theirs.pub(*publisher) as pub:
            for sub in subs:
                sub.wait("image")
            pub.wait("paused")
            assert counters(theirs.directory, "fc-receivers") == [followed]
            pub.say()
            assert pub.wait("done")["sha256"] == digest(SENT)
            received_whole(*subs[:followed])            # nobody waits for the rest
            assert pub.finish() == 0
