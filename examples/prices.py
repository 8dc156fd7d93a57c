# SPDX-License-Identifier: Apache-2.0
"""Multicast: one publisher of prices, any number of receivers, one datagram for all of them.

    penstock up
    python examples/prices.py
"""

from __future__ import annotations

import dataclasses

import penstock

# On several hosts: the interface of each, for example interface=10.0.0.0/24.
CHANNEL = "aeron:udp?endpoint=239.20.0.1:40470|interface=127.0.0.1|fc=min"


@dataclasses.dataclass
class Price:
    """What the stream carries."""

    symbol: str
    price: float


def main() -> None:
    """Publish three prices and receive them twice."""
    with penstock.connect() as client:
        desks = [client.add_subscription(CHANNEL, 1, schema=Price) for _ in range(2)]
        publication = client.add_publication(CHANNEL, 1, schema=Price)
        for number in range(3):
            publication.send(Price("ABC", 10.0 + number), timeout_s=5.0)
        publication.close()
        for number, desk in enumerate(desks, 1):
            for price in desk.messages(timeout_s=30.0, until_end=True):
                print(f"desk {number}: {price.symbol} {price.price}")


if __name__ == "__main__":
    main()
