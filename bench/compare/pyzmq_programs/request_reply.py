# SPDX-License-Identifier: Apache-2.0
"""Two requests to a server, one of which fails."""

from threading import Thread

import zmq

PRICES = {b"ABC": b"10.5"}


def serve(socket):
    for _ in range(2):
        try:
            reply = [b"", PRICES[socket.recv()]]
        except KeyError as error:
            reply = [type(error).__name__.encode(), b""]
        socket.send_multipart(reply)


with zmq.Context() as context, context.socket(zmq.REP) as server:
    server.rcvtimeo = 5000
    server.bind("inproc://prices")
    thread = Thread(target=serve, args=(server,))
    thread.start()
    with context.socket(zmq.REQ) as requester:
        requester.rcvtimeo = 5000
        requester.connect("inproc://prices")
        for symbol in (b"ABC", b"?"):
            requester.send(symbol)
            error, price = requester.recv_multipart()
            print((error or price).decode())
    thread.join()
