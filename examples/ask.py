# SPDX-License-Identifier: Apache-2.0
"""Requests and replies: a server of prices, and a client that asks it.

    penstock up
    python examples/ask.py
"""

from __future__ import annotations

import logging

import penstock

CHANNEL = "aeron:udp?endpoint=127.0.0.1:40490"      # where the server listens
PRICES = {b"ABC": b"10.5", b"XYZ": b"7.25"}


def main() -> None:
    """Ask for two prices and for one that is not there."""
    logging.getLogger("penstock.service").disabled = True       # no traceback of the KeyError
    with penstock.connect() as client:

        @client.serve(CHANNEL, 1, concurrency=4)
        def price_of(request: penstock.Message) -> bytes:
            return PRICES[request]

        with price_of, client.requester(CHANNEL, 1) as requester:
            for symbol in (b"ABC", b"XYZ", b"?"):
                try:
                    price = requester.request(symbol, timeout_s=5.0)
                    print(symbol.decode(), price.decode())
                except penstock.RemoteError as error:
                    print(symbol.decode(), "is unknown:", error.type)


if __name__ == "__main__":
    main()
