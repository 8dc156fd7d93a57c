# SPDX-License-Identifier: Apache-2.0
"""One message to three receivers."""

from queue import Queue

import zenoh

queues = [Queue() for _ in range(3)]
with zenoh.open(zenoh.Config.from_json5("{scouting: {multicast: {enabled: false}}}")) as session:
    receivers = [session.declare_subscriber("fan-out", queue.put) for queue in queues]
    session.put("fan-out", b"to all")
    print([queue.get(timeout=5).payload.to_string() for queue in queues])
