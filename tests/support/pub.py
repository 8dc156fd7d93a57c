# SPDX-License-Identifier: Apache-2.0
"""A publishing process of the tests: what ``Pub.java`` does, through our daemon and client."""

from __future__ import annotations

import os
import sys

import penstock
from support import report
from support.messages import digest, messages


def main() -> int:
    parser = report.parser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sizes", default="32")
    parser.add_argument("--exclusive", type=int, default=0)
    parser.add_argument("--pause-at", type=int, default=-1)
    args = parser.parse_args()
    sent: list[bytes] = []
    with penstock.connect(args.dir) as client:
        add = client.add_exclusive_publication if args.exclusive else client.add_publication
        with add(args.channel, args.stream) as publication:
            for destination in args.destination:
                publication.add_destination(destination)
            report.event(
                "added",
                session=publication.session_id,
                maxMessage=publication.max_message_length,
            )
            if not publication.wait_connected(args.timeout_s):
                report.event("timeout", what="connect")
                return 3
            report.event("connected", session=publication.session_id)
            for message in messages(seed=args.seed, sizes=args.sizes, count=args.count):
                if len(sent) == args.pause_at:
                    report.event("paused", position=publication.position)
                    os.read(0, 1)
                publication.send(message, args.timeout_s)
                sent.append(message)
            report.event(
                "done", count=len(sent), sha256=digest(sent), position=publication.position
            )
            while os.read(0, 1):
                pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
