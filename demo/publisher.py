# SPDX-License-Identifier: Apache-2.0
"""Replays the flight records: one message a record, through the daemon of its own host."""

from __future__ import annotations

import argparse
import json
import sys
import time

import penstock
from demo import flights
from demo.hosts import reported
from penstock.core.errors import PenstockError

GROUP = 256
REPORT_S = 0.2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--channel", required=True)
    parser.add_argument("--stream", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True, help="records a second")
    args = parser.parse_args()
    records = flights.lines()
    with (
        penstock.connect(args.dir, name="demo publisher") as client,
        client.add_exclusive_publication(args.channel, args.stream) as publication,
    ):
        if not publication.wait_connected(20.0):
            raise PenstockError(f"nobody listens on {args.channel}")
        start = reported = time.monotonic()
        for first in range(0, len(records), GROUP):
            due = start + first / args.rate
            time.sleep(max(0.0, due - time.monotonic()))
            publication.send_batch(records[first : first + GROUP], 20.0)
            if time.monotonic() - reported > REPORT_S:
                reported = time.monotonic()
                report(first + GROUP - 1, publication.position)
        report(len(records) - 1, publication.position)


def report(count: int, position: int) -> None:
    print(json.dumps({"records": count, "position": position}), flush=True)


if __name__ == "__main__":
    sys.exit(reported(main))
