# SPDX-License-Identifier: Apache-2.0
"""State of the connection, from outside of the data path."""

import asyncio
import json
import sys
from urllib.request import urlopen

import nats


async def main():
    async with await nats.connect(sys.argv[1]) as client:
        await client.subscribe("monitoring")
        await client.flush(timeout=5)
        page = await asyncio.to_thread(urlopen, f"{sys.argv[2]}/subsz?subs=1", timeout=5)
        found = json.load(page)["subscriptions_list"]
        print("connected:", any(entry["subject"] == "monitoring" for entry in found))


asyncio.run(main())
