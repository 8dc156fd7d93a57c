# SPDX-License-Identifier: Apache-2.0
"""A million records of 8 bytes, added up by the receiver."""

from threading import Thread

import numpy as np
import zmq

RECORDS = np.arange(1_000_000, dtype="<u8")


def send(context):
    with context.socket(zmq.PUSH) as sender:
        sender.sndtimeo = 30_000
        sender.connect("inproc://million")
        for record in RECORDS:
            sender.send(record.tobytes())


with zmq.Context() as context, context.socket(zmq.PULL) as receiver:
    receiver.rcvtimeo = 30_000
    receiver.bind("inproc://million")
    thread = Thread(target=send, args=(context,))
    thread.start()
    count = total = 0
    while count < len(RECORDS):
        total += int.from_bytes(receiver.recv(), "little")
        count += 1
    thread.join()
    print(count, total)
