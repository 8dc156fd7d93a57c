# SPDX-License-Identifier: Apache-2.0
"""Send until the stream is full, and name who holds it."""

import asyncio
import sys

import nats
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType
from nats.js.errors import APIError


async def main():
    async with await nats.connect(sys.argv[1]) as client:
        stream = client.jetstream(timeout=5)
        await stream.add_stream(
            name="pressure", storage=StorageType.MEMORY, retention=RetentionPolicy.INTEREST,
            discard=DiscardPolicy.NEW, max_msgs=10,
        )
        await stream.pull_subscribe("pressure", "slow-reader")
        try:
            while True:
                await stream.publish("pressure", bytes(1000))
        except APIError:
            consumers = await stream.consumers_info("pressure")
            print("held by", max(consumers, key=lambda consumer: consumer.num_pending).name)


asyncio.run(main())
