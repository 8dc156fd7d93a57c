# SPDX-License-Identifier: Apache-2.0
"""A publisher of a fixed rate and a receiver that writes down when each message came.

``support.steady --rate N`` publishes once a line comes on standard input; what could not be sent in
time is sent as soon as it can.  Without ``--rate`` it receives.  Times are those of
CLOCK_MONOTONIC, which is one for all processes of a machine, whatever their namespaces.
"""

from __future__ import annotations

import os
import sys
import time

import penstock
from support import report

SIZE = 1000
_PAUSE_S = 0.002


def publish(client: penstock.Client, channel: str, stream: int, count: int, rate: int) -> None:
    with client.add_publication(channel, stream) as publication:
        assert publication.wait_connected(60)
        report.event("connected", session=publication.session_id)
        os.read(0, 1)
        begin, sent, refused = time.monotonic(), 0, 0
        message = bytes(SIZE)
        while sent < count:
            due = min(count, int((time.monotonic() - begin) * rate))
            while sent < due and publication.offer(message) > 0:
                sent += 1
            refused += sent < due
            time.sleep(_PAUSE_S)
        report.event("done", count=sent, refused=refused)
        while os.read(0, 1):
            pass


def receive(client: penstock.Client, channel: str, stream: int, count: int, mark: int) -> None:
    times: list[float] = []

    def handle(_message: memoryview, _header: penstock.Header) -> None:
        times.append(time.monotonic())
        if len(times) == mark:
            report.event("mark", at=times[-1])

    with client.add_subscription(
        channel, stream, on_available=lambda image: report.event("image", session=image.session_id)
    ) as subscription:
        report.event("added")
        while len(times) < count:
            if not subscription.poll(handle, 64):
                subscription.wait(30)
        report.event("done", times=[round(at, 4) for at in times])
        while os.read(0, 1):
            pass


def main() -> int:
    parser = report.parser()
    parser.add_argument("--rate", type=int, default=0)
    parser.add_argument("--mark", type=int, default=-1)
    args = parser.parse_args()
    with penstock.connect(args.dir) as client:
        if args.rate:
            publish(client, args.channel, args.stream, args.count, args.rate)
        else:
            receive(client, args.channel, args.stream, args.count, args.mark)
    return 0


if __name__ == "__main__":
    sys.exit(main())
