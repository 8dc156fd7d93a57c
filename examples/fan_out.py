# SPDX-License-Identifier: Apache-2.0
"""Fan-out without multicast: receivers register at the publisher, which sends to each of them.

    penstock up
    python examples/fan_out.py
"""

from __future__ import annotations

import penstock

CONTROL = "127.0.0.1:40480"             # of the publisher's host


def main() -> None:
    """Send one message to two receivers."""
    with penstock.connect() as client:
        publication = client.add_publication(
            f"aeron:udp?control={CONTROL}|control-mode=dynamic|fc=min", 1
        )
        receivers = [
            client.add_subscription(f"aeron:udp?endpoint=127.0.0.1:0|control={CONTROL}", 1)
            for _ in range(2)
        ]
        for receiver in receivers:
            receiver.wait_connected(timeout_s=5.0)
        publication.send(b"to two", timeout_s=5.0)
        print([receiver.recv(timeout_s=5.0).decode() for receiver in receivers])


if __name__ == "__main__":
    main()
