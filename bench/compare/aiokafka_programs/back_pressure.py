# SPDX-License-Identifier: Apache-2.0
"""Send until the stream is full, and name who holds it."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

SERVER = {"bootstrap_servers": sys.argv[1], "request_timeout_ms": 5000}
PARTITION = TopicPartition("pressure", 0)


async def main():
    async with (
        AIOKafkaConsumer("pressure", group_id="slow reader", **SERVER) as receiver,
        AIOKafkaProducer(**SERVER) as sender,
    ):
        while True:
            record = await sender.send_and_wait("pressure", bytes(1000))
            if record.offset - (await receiver.committed(PARTITION) or 0) >= 10:
                break
        print("held by slow reader")


asyncio.run(main())
