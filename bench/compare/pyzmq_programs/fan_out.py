# SPDX-License-Identifier: Apache-2.0
"""One message to three receivers."""

import zmq

with zmq.Context() as context, context.socket(zmq.XPUB) as sender:
    sender.rcvtimeo = 5000
    sender.bind("inproc://fan-out")
    receivers = [context.socket(zmq.SUB) for _ in range(3)]
    sender.setsockopt(zmq.XPUB_VERBOSE, 1)
    for receiver in receivers:
        receiver.rcvtimeo = 5000
        receiver.connect("inproc://fan-out")
        receiver.subscribe(b"")
        sender.recv()
    sender.send(b"to all")
    print([receiver.recv().decode() for receiver in receivers])
    for receiver in receivers:
        receiver.close()
