# SPDX-License-Identifier: Apache-2.0
"""Ten messages between two tasks of an asyncio loop."""

import asyncio

import zmq.asyncio


async def send(sender):
    for number in range(10):
        await sender.send(b"%d" % number)


async def main():
    with zmq.asyncio.Context() as context, context.socket(zmq.PULL) as receiver:
        receiver.rcvtimeo = 5000
        receiver.bind("inproc://asyncio")
        with context.socket(zmq.PUSH) as sender:
            sender.sndtimeo = 5000
            sender.connect("inproc://asyncio")
            sending = asyncio.create_task(send(sender))
            print(sum([int(await receiver.recv()) for _ in range(10)]))
            await sending


asyncio.run(main())
