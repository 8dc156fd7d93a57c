# SPDX-License-Identifier: Apache-2.0
"""Policies of publications between real daemons: each message is delivered or dropped, and both
ends count alike."""

from __future__ import annotations

import contextlib
import functools
import struct
from collections.abc import Callable, Iterator

import attrs
import pytest
from support.hosts import PenstockHost

import penstock
from loopback.streams import connected, eventually
from penstock import Gap, Offer
from penstock.cli.stat import snapshot

STREAM = 1001
SIZE = 512
OFFERS = 4000
#: Type of the counter that the sender stores when it looks at a publication.
PUBLISHER_POSITION = 12


class Counter:
    """A subscriber that checks each message's number against what it was told of before it."""

    def __init__(self) -> None:
        self.delivered = 0
        self.dropped = 0

    def on_gap(self, gap: Gap) -> None:
        assert gap.messages is not None
        self.dropped += gap.messages

    def on_message(self, message: memoryview, _header: object) -> None:
        (number,) = struct.unpack_from("<q", message)
        assert number == self.delivered + self.dropped
        self.delivered += 1

    @property
    def total(self) -> int:
        return self.delivered + self.dropped


    def has_all(self, subscription: penstock.Subscription, offered: int) -> bool:
        """Poll once, and return whether each offered message is accounted for."""
        subscription.poll(self.on_message, 64)
        return self.total >= offered


class FastReader:
    """A subscriber that has read each message up to a number."""

    def __init__(self) -> None:
        self.read = 0

    def has_read(self, subscription: penstock.Subscription, offered: int) -> bool:
        """Poll once, and return whether the reader has the newest message."""
        subscription.poll(self._on_message, 64)
        return self.read == offered

    def _on_message(self, message: memoryview, _header: object) -> None:
        (number,) = struct.unpack_from("<q", message)
        self.read = number + 1


def has_looked(host: PenstockHost, stream: Stream) -> bool:
    """Return whether the sender has seen all that was published."""
    return any(
        counter["type_id"] == PUBLISHER_POSITION
        and counter["value"] >= stream.publication.position
        for counter in snapshot(host.directory)["counters"]
    )


@attrs.frozen
class Stream:
    """A publication under a policy and its one reader, at two daemons unless the medium is IPC."""

    channel: str
    publication: penstock.Publication
    subscription: penstock.Subscription
    reader: penstock.Client
    counter: Counter

    def offer(self, number: int) -> int:
        """Offer a numbered message, again while a term ends; return a position or DROPPED."""
        message = struct.pack("<q", number) + bytes(SIZE - 8)
        while (position := self.publication.offer(message)) == Offer.ADMIN_ACTION:
            pass
        assert position > 0 or position == Offer.DROPPED, position
        return position


NewStream = Callable[..., contextlib.AbstractContextManager[Stream]]


@pytest.fixture
def new_stream(host: PenstockHost, peer: PenstockHost, port: Callable[[], int]) -> NewStream:
    """Open a stream with the given medium and policy."""

    @contextlib.contextmanager
    def opened(
        medium: str, policy: str, *, exclusive: bool = False, term: str = "64k"
    ) -> Iterator[Stream]:
        channel = {
            "ipc": f"aeron:ipc?term-length={term}",
            "unicast": f"aeron:udp?endpoint=127.0.0.1:{port()}|term-length={term}",
            "multicast": f"aeron:udp?endpoint=239.20.0.9:{port()}|interface=127.0.0.1"
                         f"|term-length={term}|fc=min",
        }[medium] + f"|{policy}"
        counter = Counter()
        with (
            penstock.connect(host.directory) as client,
            penstock.connect((host if medium == "ipc" else peer).directory) as reader,
            reader.add_subscription(channel, STREAM, on_gap=counter.on_gap) as subscription,
        ):
            add = client.add_exclusive_publication if exclusive else client.add_publication
            with add(channel, STREAM) as publication:
                connected(publication, subscription)
                yield Stream(channel, publication, subscription, reader, counter)

    return opened


@pytest.mark.parametrize("exclusive", [False, True], ids=["shared", "exclusive"])
@pytest.mark.parametrize("medium", ["ipc", "unicast", "multicast"])
def test_dropped_messages_are_counted_at_both_ends(
    new_stream: NewStream, medium: str, exclusive: bool
) -> None:
    with new_stream(medium, "ps-policy=drop-newest|ps-depth=16k", exclusive=exclusive) as stream:
        subscription, counter = stream.subscription, stream.counter
        dropped = 0
        for number in range(OFFERS):
            dropped += stream.offer(number) == Offer.DROPPED
            if number % 400 < 40:               # it reads for a tenth of the time
                subscription.poll(counter.on_message, 16)
        assert 0 < dropped < OFFERS
        pressure = stream.publication.pressure()
        assert (pressure.dropped_messages, pressure.dropped_bytes) == (dropped, dropped * SIZE)
        offered = OFFERS + 1
        while stream.offer(offered - 1) > 0:    # ends with a drop: the log is full when it closes
            offered += 1
        stream.publication.close()

        def has_ended() -> bool:
            return counter.has_all(subscription, offered) and not subscription.images

        eventually(has_ended, f"{counter.total} messages of {offered} are accounted for")
        assert (counter.total, counter.dropped) == (offered, dropped + 1)


@pytest.mark.parametrize("medium", ["ipc", "unicast"])
def test_readers_skip_the_oldest(new_stream: NewStream, medium: str) -> None:
    with new_stream(medium, "ps-policy=drop-oldest|ps-depth=8k") as stream:
        with pytest.raises(penstock.ChannelRefused, match=r"ps-sub-policy=block .*=drop_oldest"):
            stream.reader.add_subscription(f"{stream.channel}|ps-sub-policy=block", STREAM)
        counter = stream.counter
        accepted = offered = 0
        while accepted < OFFERS:                # nobody reads
            accepted += stream.offer(offered) > 0
            offered += 1
        assert stream.publication.pressure().dropped_messages == offered - accepted
        eventually(
            lambda: counter.has_all(stream.subscription, offered),
            f"{counter.total} of {offered} messages are accounted for",
        )
        assert counter.total == offered
        assert counter.delivered * SIZE < 3 * 64 * 1024


@pytest.mark.parametrize("medium", ["ipc", "unicast", "multicast"])
def test_a_slow_reader_reads_the_newest_although_the_log_has_all(
    host: PenstockHost, new_stream: NewStream, medium: str
) -> None:
    """After each skip the next message is at most the depth behind, in messages."""
    depth, batch, log = 8192, 10, 16 << 20
    behind_most = depth // (SIZE + 32) + 2 * batch
    with new_stream(
        medium, f"ps-policy=drop-oldest|ps-depth={depth}", term="16m"
    ) as stream, stream.reader.add_subscription(
        f"{stream.channel}|ps-sub-policy=independent", STREAM
    ) as fast:
        eventually(lambda: bool(fast.images), "the fast reader has the stream")
        slow, newest = stream.counter, FastReader()
        offered = skips = 0
        while skips < 3:
            assert offered * (SIZE + 32) < log // 2, "nothing was overwritten, and nothing skipped"
            for _ in range(batch):
                stream.offer(offered)
                offered += 1
            eventually(
                functools.partial(newest.has_read, fast, offered), "the fast reader has all"
            )
            eventually(functools.partial(has_looked, host, stream), "the sender looks")
            dropped = slow.dropped
            stream.subscription.poll(slow.on_message, 1)
            if slow.dropped > dropped:
                skips += 1
                assert offered - slow.total <= behind_most
        eventually(
            lambda: slow.has_all(stream.subscription, offered),
            f"{slow.total} of {offered} messages are accounted for",
        )


@pytest.mark.parametrize("medium", ["ipc", "unicast", "multicast"])
def test_publishers_are_ahead_by_the_depth_in_messages(new_stream: NewStream, medium: str) -> None:
    """Seven messages fit into the receiver's window, ten are the depth."""
    window = "" if medium == "ipc" else "|rcv-wnd=4k"
    most = 10 if medium == "ipc" else 17
    with new_stream(medium, f"ps-depth=10msg{window}") as stream:
        sent = 0

        def accepts() -> bool:
            nonlocal sent
            code = stream.publication.offer(struct.pack("<q", sent) + bytes(SIZE - 8))
            assert code > 0 or code in (Offer.BACK_PRESSURED, Offer.ADMIN_ACTION), code
            sent += code > 0
            return code > 0

        eventually(lambda: not accepts() and sent >= most, f"{most} messages are accepted")
        assert not any(accepts() for _ in range(100))
        assert sent == most
        assert stream.publication.pressure().watermark in ("high", "paused")
        eventually(
            lambda: stream.counter.has_all(stream.subscription, sent) and accepts(),
            "publishers continue when the messages have left the log",
        )


def test_an_error_is_reset(client: penstock.Client) -> None:
    channel = "aeron:ipc?term-length=64k|ps-policy=error|ps-depth=8k"
    received: list[bytes] = []
    with (
        client.add_publication(channel, STREAM) as publication,
        client.add_subscription(channel, STREAM) as subscription,
    ):
        connected(publication, subscription)
        sent = 0
        while publication.offer(b"x" * SIZE) > 0:
            sent += 1
        assert publication.is_failed
        assert publication.offer(b"x") == Offer.FAILED
        with pytest.raises(penstock.PublicationFailed, match="reset"):
            publication.send(b"x", 1.0)
        while len(received) < sent:
            subscription.poll(lambda message, _header: received.append(bytes(message)), 64)
        def has_room() -> bool:
            subscription.poll(lambda message, _header: received.append(bytes(message)), 64)
            return publication.available_window > 0

        eventually(has_room, "what was read makes no room")
        assert publication.offer(b"x") == Offer.FAILED      # room alone does not end it
        assert publication.reset()
        assert not publication.reset()
        publication.send(b"y" * SIZE, 30.0)


def test_a_batch_under_drop_newest_ends(client: penstock.Client) -> None:
    channel = "aeron:ipc?term-length=64k|ps-policy=drop_newest|ps-depth=8k"
    with (
        client.add_publication(channel, STREAM) as publication,
        client.add_subscription(channel, STREAM) as subscription,
    ):
        connected(publication, subscription)
        assert publication.send_batch([b"z" * SIZE] * 100, 30.0) == Offer.DROPPED
        assert publication.offer_batch([b"z" * SIZE] * 7) == (0, Offer.DROPPED)


def test_send_drops_a_message_once(client: penstock.Client) -> None:
    counter = Counter()
    channel = "aeron:ipc?term-length=64k|ps-policy=drop_newest|ps-depth=8k"
    with (
        client.add_publication(channel, STREAM) as publication,
        client.add_subscription(channel, STREAM, on_gap=counter.on_gap) as subscription,
    ):
        connected(publication, subscription)
        results = [
            publication.send(struct.pack("<q", number) + bytes(SIZE - 8), 30.0)
            for number in range(100)
        ]
        dropped = results.count(Offer.DROPPED)
        assert 0 < dropped < 100
        assert publication.pressure().dropped_messages == dropped
        publication.close()
        eventually(
            lambda: counter.has_all(subscription, 100) and not subscription.images,
            f"{counter.total} messages of 100 are accounted for",
        )
        assert (counter.total, counter.dropped) == (100, dropped)


@pytest.mark.parametrize(("options", "words"), [
    ("ps-policy=drop_first", "drop_oldest"),
    ("ps-policy=drop_oldest|ps-depth=1m|term-length=64k", "ps-depth=1m exceeds .* 65536"),
    ("ps-policy=rate_limit", "ps-rate"),
    ("ps-policy=drop_newest|ps-depth=1m|term-length=64k", "ps-depth=1m exceeds .* 65536"),
    ("ps-low-watermark=1.5", "up to 1"),
    ("ps-low-watermark=0", "above 0"),
    ("ps-policy=drop_newest|ps-depth=32", "depth of 32 bytes .* ps-policy=drop_newest"),
    ("ps-depth=16", "32"),
    ("ps-depth=0msg", "1"),
    ("ps-depth=5msg,6msg", "twice"),
])
def test_contradictions_are_refused(
    client: penstock.Client, options: str, words: str
) -> None:
    with pytest.raises(penstock.ChannelRefused, match=words):
        client.add_publication(f"aeron:ipc?{options}", STREAM)


def test_a_second_publisher_must_state_the_same(client: penstock.Client) -> None:
    with (
        client.add_publication("aeron:ipc?ps-policy=error|ps-depth=64k", STREAM),
        client.add_publication("aeron:ipc", STREAM),
    ):
        with pytest.raises(penstock.ChannelRefused, match=r"ps-policy=block .* ps-policy=error"):
            client.add_publication("aeron:ipc?ps-policy=block", STREAM)
        with pytest.raises(penstock.ChannelRefused, match="ps-depth"):
            client.add_publication("aeron:ipc?ps-depth=32k", STREAM)
