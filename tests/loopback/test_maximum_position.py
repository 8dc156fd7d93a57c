# SPDX-License-Identifier: Apache-2.0
"""Streams that end at the maximum position, between real daemons."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from loopback.streams import TIMEOUT_S, connected, eventually
from penstock import Client, Header, Offer, Subscription

TERM = 65536
END = TERM << 31


def channel(base: str, back: int) -> str:
    """``base`` with a publisher that starts ``back`` bytes below the maximum position."""
    terms = -(-back // TERM)
    return (
        f"{base}term-length=64k|init-term-id=7|term-id={(7 - terms + 2**32) % 2**32 - 2**31}"
        f"|term-offset={terms * TERM - back}"
    )


def ended(subscription: Subscription) -> bool:
    assert subscription.poll(lambda _m, _h: None, 1) == 0
    return all(image.is_end_of_stream for image in subscription.images)


@pytest.mark.parametrize("medium", ["udp", "ipc"])
@pytest.mark.parametrize("size", [20, 1000, 1376, 4000])
@pytest.mark.parametrize("exclusive", [False, True])
def test_every_accepted_message_arrives_and_the_stream_ends(
    client: Client, remote: Client, port: Callable[[], int], medium: str, size: int,
    exclusive: bool,
) -> None:
    base = f"aeron:udp?endpoint=127.0.0.1:{port()}" if medium == "udp" else "aeron:ipc"
    reader = remote if medium == "udp" else client
    add = client.add_exclusive_publication if exclusive else client.add_publication
    for back in (4096, 60_000 // 32 * 32, 3 * TERM):
        stream = 100 + back
        with reader.add_subscription(base, stream) as subscription:
            publication = add(channel(base + ("|" if medium == "udp" else "?"), back), stream)
            connected(publication, subscription)
            sent: list[bytes] = []
            received: list[bytes] = []

            def keep(message: memoryview, _header: Header, into: list[bytes] = received) -> None:
                into.append(bytes(message))

            while True:
                message = b"%8d" % len(sent) * (size // 8 + 1)
                result = publication.offer(message[:size])
                if result > 0:
                    sent.append(message[:size])
                elif result == Offer.MAX_POSITION_EXCEEDED:
                    break
                subscription.poll(keep, 10)
            assert publication.position == END
            assert publication.offer(b"x") == Offer.MAX_POSITION_EXCEEDED
            publication.close()
            while len(received) < len(sent):
                if not subscription.poll(keep, 10):
                    assert subscription.wait(TIMEOUT_S), f"{len(received)} of {len(sent)} came"
            assert received == sent
            eventually(lambda: ended(subscription), "the stream does not end")
