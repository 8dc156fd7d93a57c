# SPDX-License-Identifier: Apache-2.0
"""One process sends a text to another part of itself."""

import zmq

with zmq.Context() as context, context.socket(zmq.PULL) as receiver:
    receiver.rcvtimeo = 5000
    receiver.bind("inproc://hello")
    with context.socket(zmq.PUSH) as sender:
        sender.sndtimeo = 5000
        sender.connect("inproc://hello")
        sender.send(b"hello")
        print(receiver.recv().decode())
