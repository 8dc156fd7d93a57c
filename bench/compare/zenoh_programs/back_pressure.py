# SPDX-License-Identifier: Apache-2.0
"""Send until the stream is full, and name who holds it."""

from threading import Event, Thread

import zenoh


def send(session, full):
    while not full.is_set():
        session.put("pressure", bytes(1000))


with zenoh.open(zenoh.Config.from_json5("{scouting: {multicast: {enabled: false}}}")) as session:
    receiver = session.declare_subscriber("pressure", zenoh.handlers.FifoChannel(10))
    full = Event()
    thread = Thread(target=send, args=(session, full))
    thread.start()
    thread.join(timeout=0.2)
    full.set()
    receiver.undeclare()
    thread.join(timeout=5)
    print("held by unknown")
