# SPDX-License-Identifier: Apache-2.0
"""One process sends a text to another part of itself."""

import penstock

with penstock.connect() as client:
    receiver = client.add_subscription("aeron:ipc", 1)
    sender = client.add_publication("aeron:ipc", 1)
    sender.send(b"hello", timeout_s=5)
    print(receiver.recv(timeout_s=5).decode())
