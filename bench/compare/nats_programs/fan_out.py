# SPDX-License-Identifier: Apache-2.0
"""One message to three receivers."""

import asyncio
import sys

import nats


async def main():
    async with await nats.connect(sys.argv[1]) as client:
        receivers = [await client.subscribe("fan-out") for _ in range(3)]
        await client.publish("fan-out", b"to all")
        print([(await receiver.next_msg(timeout=5)).data.decode() for receiver in receivers])


asyncio.run(main())
