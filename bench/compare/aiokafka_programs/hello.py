# SPDX-License-Identifier: Apache-2.0
"""One process sends a text to another part of itself."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

SERVER = {"bootstrap_servers": sys.argv[1], "request_timeout_ms": 5000}


async def main():
    async with (
        AIOKafkaConsumer("hello", auto_offset_reset="earliest", **SERVER) as receiver,
        AIOKafkaProducer(**SERVER) as sender,
    ):
        await sender.send_and_wait("hello", b"hello")
        record = await asyncio.wait_for(receiver.getone(), timeout=5)
        print(record.value.decode())


asyncio.run(main())
