# SPDX-License-Identifier: Apache-2.0
"""One message to three receivers."""

import penstock

with penstock.connect() as client:
    receivers = [client.add_subscription("aeron:ipc", 4) for _ in range(3)]
    sender = client.add_publication("aeron:ipc", 4)
    for receiver in receivers:
        receiver.wait_connected(5)
    sender.send(b"to all", timeout_s=5)
    print([receiver.recv(timeout_s=5).decode() for receiver in receivers])
