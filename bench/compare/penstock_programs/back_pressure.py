# SPDX-License-Identifier: Apache-2.0
"""Send until the stream is full, and name who holds it."""

import penstock

with penstock.connect() as client, penstock.connect(name="slow reader") as other:
    receiver = other.add_subscription("aeron:ipc?term-length=64k", 5)
    sender = client.add_publication("aeron:ipc?term-length=64k", 5)
    sender.wait_connected(5)
    try:
        while True:
            sender.send(bytes(1000), timeout_s=0.2)
    except penstock.TimeoutExpired:
        print("held by", sender.pressure().client)
