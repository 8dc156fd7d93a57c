# SPDX-License-Identifier: Apache-2.0
"""Two requests to a server, one of which fails."""

import asyncio
import sys

import nats.micro

PRICES = {b"ABC": b"10.5"}


async def price_of(request):
    try:
        await request.respond(PRICES[request.data])
    except KeyError as error:
        await request.respond_error("404", type(error).__name__)


async def main():
    async with (
        await nats.connect(sys.argv[1]) as client,
        await nats.micro.add_service(client, name="prices", version="1.0.0") as service,
    ):
        await service.add_endpoint(name="prices", handler=price_of)
        for symbol in (b"ABC", b"?"):
            reply = await client.request("prices", symbol, timeout=5)
            print(reply.data.decode() or reply.headers["Nats-Service-Error"])


asyncio.run(main())
