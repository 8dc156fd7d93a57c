# SPDX-License-Identifier: Apache-2.0
"""One process sends a text to another part of itself."""

from queue import Queue

import zenoh

received = Queue()
with zenoh.open(zenoh.Config.from_json5("{scouting: {multicast: {enabled: false}}}")) as session:
    receiver = session.declare_subscriber("hello", received.put)
    session.put("hello", b"hello")
    print(received.get(timeout=5).payload.to_string())
