# SPDX-License-Identifier: Apache-2.0
"""State of the connection, from outside of the data path."""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient

SERVER = {"bootstrap_servers": sys.argv[1], "request_timeout_ms": 5000}


async def main():
    async with AIOKafkaConsumer("monitoring", group_id="monitoring", **SERVER):
        admin = AIOKafkaAdminClient(**SERVER)
        await admin.start()
        (answer,) = await admin.describe_consumer_groups(["monitoring"])
        print("connected:", len(answer.groups[0][5]) == 1)
        await admin.close()


asyncio.run(main())
