# SPDX-License-Identifier: Apache-2.0
"""Ten messages between two tasks of an asyncio loop."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

SERVER = {"bootstrap_servers": sys.argv[1], "request_timeout_ms": 5000}


async def send(sender):
    for number in range(10):
        await sender.send_and_wait("asyncio", b"%d" % number)


async def main():
    async with (
        AIOKafkaConsumer("asyncio", auto_offset_reset="earliest", **SERVER) as receiver,
        AIOKafkaProducer(**SERVER) as sender,
    ):
        sending = asyncio.create_task(send(sender))
        async with asyncio.timeout(5):
            print(sum([int((await receiver.getone()).value) for _ in range(10)]))
        await sending


asyncio.run(main())
