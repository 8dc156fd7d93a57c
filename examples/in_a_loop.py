# SPDX-License-Identifier: Apache-2.0
"""asyncio: a publisher and a receiver as two tasks of one loop.

    penstock up
    python examples/in_a_loop.py
"""

from __future__ import annotations

import asyncio

import penstock

CHANNEL, STREAM = "aeron:ipc", 30


async def publish(client: penstock.AsyncClient) -> None:
    """Send ten numbers, with a pause between them."""
    async with await client.add_publication(CHANNEL, STREAM) as publication:
        for number in range(10):
            await publication.send(b"%d" % number, timeout_s=5.0)
            await asyncio.sleep(0.001)


async def receive(client: penstock.AsyncClient) -> int:
    """Add what comes, until the publisher has ended."""
    total = 0
    async with await client.add_subscription(CHANNEL, STREAM) as subscription:
        async for message in subscription.messages(timeout_s=30.0, until_end=True):
            total += int(message)
    return total


async def main() -> None:
    """Run both."""
    async with penstock.open_client() as client:
        total, _ = await asyncio.gather(receive(client), publish(client))
        print("received a total of", total)


if __name__ == "__main__":
    asyncio.run(main())
