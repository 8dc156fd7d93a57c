# SPDX-License-Identifier: Apache-2.0
"""Two requests to a server, one of which fails."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

PRICES = {b"ABC": b"10.5"}
SERVER = {"bootstrap_servers": sys.argv[1], "request_timeout_ms": 5000}


async def serve(requests, sender):
    async for request in requests:
        try:
            reply = {"value": PRICES[request.value]}
        except KeyError as error:
            reply = {"headers": [("error", type(error).__name__.encode())], "value": b""}
        await sender.send_and_wait("replies", key=request.key, **reply)


async def main():
    async with (
        AIOKafkaConsumer("requests", auto_offset_reset="earliest", **SERVER) as requests,
        AIOKafkaConsumer("replies", auto_offset_reset="earliest", **SERVER) as replies,
        AIOKafkaProducer(**SERVER) as sender,
    ):
        serving = asyncio.create_task(serve(requests, sender))
        for key, symbol in ((b"1", b"ABC"), (b"2", b"?")):
            await sender.send_and_wait("requests", symbol, key=key)
            async with asyncio.timeout(5):
                while (reply := await replies.getone()).key != key:
                    pass
            print((reply.value or dict(reply.headers)["error"]).decode())
        serving.cancel()


asyncio.run(main())
