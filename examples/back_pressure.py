# SPDX-License-Identifier: Apache-2.0
"""Back-pressure: a reader stops, the publisher is held, and learns by whom.

    penstock up
    python examples/back_pressure.py
"""

from __future__ import annotations

import penstock

CHANNEL, STREAM = "aeron:ipc?term-length=64k", 40


def main() -> None:
    """Send until the stream takes no more, ask why, then let the reader read."""
    with (
        penstock.connect(name="publisher") as client,
        penstock.connect(name="slow reader") as other,
    ):
        subscription = other.add_subscription(CHANNEL, STREAM)
        publication = client.add_publication(CHANNEL, STREAM)
        publication.wait_connected(timeout_s=5.0)
        accepted = 0
        try:
            while True:
                publication.send(bytes(1000), timeout_s=0.2)
                accepted += 1
        except penstock.TimeoutExpired:
            print("held by:", publication.pressure().cause)
        for _ in range(accepted):
            subscription.recv(timeout_s=5.0)
        publication.send(bytes(1000), timeout_s=5.0)
        print("accepted again")


if __name__ == "__main__":
    main()
