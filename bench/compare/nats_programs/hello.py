# SPDX-License-Identifier: Apache-2.0
"""One process sends a text to another part of itself."""

import asyncio
import sys

import nats


async def main():
    async with await nats.connect(sys.argv[1]) as client:
        receiver = await client.subscribe("hello")
        await client.publish("hello", b"hello")
        print((await receiver.next_msg(timeout=5)).data.decode())


asyncio.run(main())
