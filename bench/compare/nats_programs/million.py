# SPDX-License-Identifier: Apache-2.0
"""A million records of 8 bytes, added up by the receiver."""

import asyncio
import sys

import nats
import numpy as np

RECORDS = np.arange(1_000_000, dtype="<u8")


async def send(client):
    for number, record in enumerate(RECORDS, 1):
        await client.publish("million", record.tobytes())
        if number % 10_000 == 0:
            await client.flush(timeout=30)


async def main():
    async with await nats.connect(sys.argv[1]) as client:
        receiver = await client.subscribe("million", pending_msgs_limit=len(RECORDS))
        sending = asyncio.create_task(send(client))
        count = total = 0
        async with asyncio.timeout(300):
            while count < len(RECORDS):
                total += int.from_bytes((await receiver.next_msg(None)).data, "little")
                count += 1
        await sending
        print(count, total)


asyncio.run(main())
