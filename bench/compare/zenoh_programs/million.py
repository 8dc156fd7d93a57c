# SPDX-License-Identifier: Apache-2.0
"""A million records of 8 bytes, added up by the receiver."""

from queue import Queue
from threading import Thread

import numpy as np
import zenoh

RECORDS = np.arange(1_000_000, dtype="<u8")


def send(sender):
    for record in RECORDS:
        sender.put(record.tobytes())


received = Queue()
with zenoh.open(zenoh.Config.from_json5("{scouting: {multicast: {enabled: false}}}")) as session:
    receiver = session.declare_subscriber("million", received.put)
    thread = Thread(target=send, args=(session.declare_publisher("million"),))
    thread.start()
    count = total = 0
    while count < len(RECORDS):
        total += int.from_bytes(received.get(timeout=30).payload.to_bytes(), "little")
        count += 1
    thread.join()
    print(count, total)
