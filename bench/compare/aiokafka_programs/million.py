# SPDX-License-Identifier: Apache-2.0
"""A million records of 8 bytes, added up by the receiver."""

import asyncio
import sys

import numpy as np
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

RECORDS = np.arange(1_000_000, dtype="<u8")
SERVER = {"bootstrap_servers": sys.argv[1]}


async def send(sender):
    for record in RECORDS:
        await sender.send("million", record.tobytes())
    await sender.flush()


async def main():
    async with (
        AIOKafkaConsumer("million", auto_offset_reset="earliest", **SERVER) as receiver,
        AIOKafkaProducer(linger_ms=5, **SERVER) as sender,
    ):
        sending = asyncio.create_task(send(sender))
        count = total = 0
        async with asyncio.timeout(300):
            while count < len(RECORDS):
                total += int.from_bytes((await receiver.getone()).value, "little")
                count += 1
        await sending
        print(count, total)


asyncio.run(main())
