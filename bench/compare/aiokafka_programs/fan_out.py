# SPDX-License-Identifier: Apache-2.0
"""One message to three receivers."""

import asyncio
import sys
from contextlib import AsyncExitStack

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

SERVER = {"bootstrap_servers": sys.argv[1], "request_timeout_ms": 5000}


async def main():
    async with AsyncExitStack() as stack, AIOKafkaProducer(**SERVER) as sender:
        receivers = [AIOKafkaConsumer("fan-out", auto_offset_reset="earliest", **SERVER)
                     for _ in range(3)]
        for receiver in receivers:
            await stack.enter_async_context(receiver)
        await sender.send_and_wait("fan-out", b"to all")
        records = [await asyncio.wait_for(receiver.getone(), timeout=5) for receiver in receivers]
        print([record.value.decode() for record in records])


asyncio.run(main())
