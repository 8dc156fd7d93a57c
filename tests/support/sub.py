# SPDX-License-Identifier: Apache-2.0
"""A receiving process of the tests: what ``Sub.java`` does, through our daemon and client."""

from __future__ import annotations

import argparse
import os
import sys
import time

import penstock
from support import report
from support.messages import digest


def _image(image: penstock.Image) -> None:
    report.event(
        "image",
        session=image.session_id,
        source=image.source_identity,
        position=image.join_position,
        mtu=image.mtu,
        term=image.term_length,
    )


def _image_lost(image: penstock.Image) -> None:
    report.event("image-lost", session=image.session_id, position=image.position)


def _room(args: argparse.Namespace, received: int) -> int:
    """How many it may take at once: never past where it stops."""
    stops = [end for end in (args.count, args.hold_at) if end > received]
    return min(64, *(end - received for end in stops)) if stops else 64


def main() -> int:
    parser = report.parser()
    parser.add_argument("--mark", type=int, default=-1)
    parser.add_argument("--hold-at", type=int, default=-1)
    args = parser.parse_args()
    deadline = time.monotonic() + args.timeout_s
    received: list[bytes] = []

    def handle(message: memoryview, _header: penstock.Header) -> None:
        received.append(bytes(message))
        if len(received) == args.mark:
            report.event("mark", count=args.mark, at=time.monotonic())

    with (
        penstock.connect(args.dir) as client,
        client.add_subscription(
            args.channel, args.stream, on_available=_image, on_unavailable=_image_lost
        ) as subscription,
    ):
        for destination in args.destination:
            subscription.add_destination(destination)
        report.event("added", registration=subscription.registration_id)
        while len(received) < args.count:
            if len(received) == args.hold_at:
                report.event("held", count=args.hold_at)
                os.read(0, 1)
                args.hold_at = -1
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                report.event("timeout", count=len(received))
                return 3
            if not subscription.poll(handle, limit=_room(args, len(received))):
                subscription.wait(left_s)
        report.event(
            "done",
            count=len(received),
            bytes=sum(map(len, received)),
            sha256=digest(received),
            at=time.monotonic(),
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
