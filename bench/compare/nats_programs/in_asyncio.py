# SPDX-License-Identifier: Apache-2.0
"""Ten messages between two tasks of an asyncio loop."""

import asyncio
import sys

import nats


async def send(client):
    for number in range(10):
        await client.publish("asyncio", b"%d" % number)


async def main():
    async with await nats.connect(sys.argv[1]) as client:
        receiver = await client.subscribe("asyncio")
        sending = asyncio.create_task(send(client))
        print(sum([int((await receiver.next_msg(timeout=5)).data) for _ in range(10)]))
        await sending


asyncio.run(main())
