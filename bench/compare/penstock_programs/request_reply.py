# SPDX-License-Identifier: Apache-2.0
"""Two requests to a server, one of which fails."""

import logging

import penstock

logging.getLogger("penstock.service").disabled = True
PRICES = {b"ABC": b"10.5"}

with penstock.connect() as client:

    @client.serve("aeron:ipc", 3)
    def price_of(request):
        return PRICES[request]

    with price_of, client.requester("aeron:ipc", 3) as requester:
        print(requester.request(b"ABC", timeout_s=5).decode())
        try:
            requester.request(b"?", timeout_s=5)
        except penstock.RemoteError as error:
            print(error.type)
