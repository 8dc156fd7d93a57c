# SPDX-License-Identifier: Apache-2.0
"""Ten messages between two tasks of an asyncio loop."""

import asyncio

import zenoh


async def send(sender):
    for number in range(10):
        await asyncio.to_thread(sender.put, b"%d" % number)


async def receive(queue):
    sample = await asyncio.wait_for(queue.get(), timeout=5)
    return int(sample.payload.to_string())


async def main():
    loop, queue = asyncio.get_running_loop(), asyncio.Queue()
    config = zenoh.Config.from_json5("{scouting: {multicast: {enabled: false}}}")
    with zenoh.open(config) as session:
        receiver = session.declare_subscriber(
            "asyncio", lambda sample: loop.call_soon_threadsafe(queue.put_nowait, sample)
        )
        sending = asyncio.create_task(send(session.declare_publisher("asyncio")))
        print(sum([await receive(queue) for _ in range(10)]))
        await sending
        receiver.undeclare()


asyncio.run(main())
