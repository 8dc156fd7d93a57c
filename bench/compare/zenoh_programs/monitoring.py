# SPDX-License-Identifier: Apache-2.0
"""State of the connection, from outside of the data path."""

import zenoh

with zenoh.open(zenoh.Config.from_json5("{scouting: {multicast: {enabled: false}}}")) as session:
    receiver = session.declare_subscriber("monitoring")
    sender = session.declare_publisher("monitoring")
    print("connected:", sender.matching_status.matching)
