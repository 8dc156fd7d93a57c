# SPDX-License-Identifier: Apache-2.0
"""A million records of 8 bytes, added up by the receiver."""

from threading import Thread

import numpy as np

import penstock

RECORDS = np.arange(1_000_000, dtype="<u8").view([("value", "<u8")])

with penstock.connect() as client:
    receiver = client.add_subscription("aeron:ipc", 2)
    sender = client.add_publication("aeron:ipc", 2)
    thread = Thread(target=sender.send_batch, args=(RECORDS, 30))
    thread.start()
    count = total = 0
    while count < len(RECORDS):
        batch = receiver.recv_batch(timeout_s=30)
        count += len(batch)
        total += sum(int.from_bytes(message, "little") for message in batch)
    thread.join()
    print(count, total)
