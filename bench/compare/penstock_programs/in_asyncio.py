# SPDX-License-Identifier: Apache-2.0
"""Ten messages between two tasks of an asyncio loop."""

import asyncio

import penstock


async def send(sender):
    for number in range(10):
        await sender.send(b"%d" % number, timeout_s=5)


async def main():
    async with penstock.open_client() as client:
        receiver = await client.add_subscription("aeron:ipc", 7)
        sender = await client.add_publication("aeron:ipc", 7)
        sending = asyncio.create_task(send(sender))
        print(sum([int(await receiver.recv(timeout_s=5)) for _ in range(10)]))
        await sending


asyncio.run(main())
