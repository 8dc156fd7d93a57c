# SPDX-License-Identifier: Apache-2.0
"""Send until the stream is full, and name who holds it."""

import zmq

with zmq.Context() as context, context.socket(zmq.PULL) as receiver:
    receiver.rcvhwm = 10
    receiver.bind("inproc://pressure")
    with context.socket(zmq.PUSH) as sender:
        sender.sndhwm = 10
        sender.sndtimeo = 200
        sender.connect("inproc://pressure")
        try:
            while True:
                sender.send(bytes(1000))
        except zmq.Again:
            print("held by unknown")
