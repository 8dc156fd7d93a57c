# SPDX-License-Identifier: Apache-2.0
"""State of the connection, from outside of the data path."""

import zmq
from zmq.utils.monitor import recv_monitor_message

with zmq.Context() as context, context.socket(zmq.PULL) as receiver:
    port = receiver.bind_to_random_port("tcp://127.0.0.1")
    with context.socket(zmq.PUSH) as sender:
        monitor = sender.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        monitor.rcvtimeo = 5000
        sender.connect(f"tcp://127.0.0.1:{port}")
        event = recv_monitor_message(monitor)["event"]
        print("connected:", event == zmq.EVENT_HANDSHAKE_SUCCEEDED)
        sender.disable_monitor()
        monitor.close()
