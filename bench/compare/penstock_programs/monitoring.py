# SPDX-License-Identifier: Apache-2.0
"""State of the connection, from outside of the data path."""

import penstock

with penstock.connect() as client:
    receiver = client.add_subscription("aeron:ipc", 6)
    sender = client.add_publication("aeron:ipc", 6)
    sender.wait_connected(5)
    (found,) = (p for p in client.status()["publications"] if p["stream_id"] == 6)
    print("connected:", found["connected"])
