# SPDX-License-Identifier: Apache-2.0
"""Subscriptions that divide their window and their polls among publishers (``ps-fanin``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

import penstock
from loopback.conftest import NewHost
from loopback.streams import connected, eventually
from penstock import Offer, Publication, Subscription

STREAM = 1001
KIB = 1024


def counts_of_polls(subscription: Subscription, limit: int, polls: int) -> dict[int, int]:
    """Poll, and count the delivered messages of each session."""
    counts: Counter[int] = Counter()
    for _ in range(polls):
        subscription.poll(lambda _m, header: counts.update([header.session_id]), limit)
    return counts


def joined(subscription: Subscription, publications: list[Publication]) -> None:
    for publication in publications:
        connected(publication, subscription)
    eventually(lambda: len(subscription.images) == len(publications), "an image is missing")


@pytest.mark.parametrize("limit", [1, 3, 11, 64])
@pytest.mark.parametrize(("fanin", "shares"), [("priority", (8, 2, 1)), ("equal", (1, 1, 1))])
def test_polls_divide_by_priority(
    new_host: NewHost, fanin: str, shares: tuple[int, ...], limit: int
) -> None:
    """While each publisher has data, each poll limit divides the messages by the weights."""
    host = new_host()
    with penstock.connect(host.directory) as client:
        subscription = client.add_subscription(f"aeron:ipc?ps-fanin={fanin}", STREAM)
        publications = [
            client.add_exclusive_publication(f"aeron:ipc?term-length=1m{options}", STREAM)
            for options in ("|ps-priority=750", "|ps-priority=300", "")
        ]
        joined(subscription, publications)
        for publication in publications:
            for _ in range(2000):
                assert publication.offer(b"waiting") > 0
        counts = counts_of_polls(subscription, limit, 1100 // limit)
        got = [counts[each.session_id] for each in publications]
        whole = sum(got)
        assert whole > 600
        for share, count in zip(shares, got, strict=True):
            assert count == pytest.approx(whole * share / sum(shares), rel=0.06)


def test_a_poll_whose_images_are_idle_takes_from_the_one_with_data(new_host: NewHost) -> None:
    host = new_host()
    with penstock.connect(host.directory) as client:
        subscription = client.add_subscription("aeron:ipc?ps-fanin=priority", STREAM)
        publications = [
            client.add_exclusive_publication(
                f"aeron:ipc?term-length=64k|ps-priority={each}", STREAM
            )
            for each in (1000, 0)
        ]
        joined(subscription, publications)
        for _ in range(100):
            assert publications[1].offer(b"alone") > 0
        assert counts_of_polls(subscription, 64, 1) == {publications[1].session_id: 64}


@pytest.mark.parametrize(
    ("fanin", "windows"),
    [("", (128, 128)), ("|ps-fanin=equal", (64, 64)), ("|ps-fanin=priority", (102, 25))],
)
def test_publishers_share_one_receiver_window(
    new_host: NewHost, port: Callable[[], int], fanin: str, windows: tuple[int, int]
) -> None:
    """Bytes that each of two publishers on another host may have in flight."""
    near, far = new_host(), new_host()
    endpoint = f"aeron:udp?endpoint=127.0.0.1:{port()}"
    with penstock.connect(near.directory) as sender, penstock.connect(far.directory) as receiver:
        subscription = receiver.add_subscription(f"{endpoint}|rcv-wnd=128k{fanin}", STREAM)
        publications = [
            sender.add_exclusive_publication(
                f"{endpoint}|term-length=1m|pub-wnd=64k|ps-priority={priority}", STREAM
            )
            for priority in (500, 0)
        ]
        joined(subscription, publications)
        left = {each.session_id: 600 for each in publications}      # more than the first windows
        while any(left.values()):
            for publication in publications:
                if left[publication.session_id] and publication.offer(b"x" * 992) > 0:
                    left[publication.session_id] -= 1
            counts_of_polls(subscription, 64, 1)
        read = {each.session_id: each.position for each in publications}
        eventually(
            lambda: not counts_of_polls(subscription, 64, 1)
            and all(image.position == read[image.session_id] for image in subscription.images),
            "data is missing",
        )
        for publication, window in zip(publications, windows, strict=True):
            flight = (window + 64) * KIB

            def is_full(publication: Publication = publication, flight: int = flight) -> bool:
                while publication.offer(b"x" * 992) > 0:
                    pass
                ahead = publication.position - read[publication.session_id]
                assert ahead <= flight + 2 * KIB
                return ahead > flight - 4 * KIB

            eventually(is_full, f"{window} KiB are not in flight")
            assert publication.offer(b"x" * 992) in (Offer.BACK_PRESSURED, Offer.ADMIN_ACTION)


def test_a_publisher_that_leaves_gives_its_part_to_the_others(
    new_host: NewHost, port: Callable[[], int]
) -> None:
    near, far = new_host(), new_host()
    endpoint = f"aeron:udp?endpoint=127.0.0.1:{port()}"
    with penstock.connect(near.directory) as sender, penstock.connect(far.directory) as receiver:
        subscription = receiver.add_subscription(
            f"{endpoint}|rcv-wnd=128k|ps-fanin=equal", STREAM
        )
        first, second = (
            sender.add_exclusive_publication(f"{endpoint}|term-length=1m|pub-wnd=64k", STREAM)
            for _ in range(2)
        )
        joined(subscription, [first, second])
        second.close()
        eventually(lambda: len(subscription.images) == 1, "the image stays")
        for _ in range(600):
            while first.offer(b"x" * 992) < 0:
                counts_of_polls(subscription, 64, 1)
        eventually(
            lambda: not counts_of_polls(subscription, 64, 1)
            and subscription.images[0].position == first.position, "data is missing",
        )
        read = first.position

        def is_full() -> bool:
            while first.offer(b"x" * 992) > 0:
                pass
            return first.position - read > (128 + 64 - 4) * KIB

        eventually(is_full, "the window stays divided")
