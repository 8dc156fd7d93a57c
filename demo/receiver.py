# SPDX-License-Identifier: Apache-2.0
"""Receives the flight records through the daemon of its own host and aggregates them."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import penstock
from demo.flights import Aggregate
from demo.hosts import reported
from penstock.core.errors import PenstockError

REPORT_S = 0.2
SILENCE_S = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--channel", required=True)
    parser.add_argument("--stream", type=int, required=True)
    args = parser.parse_args()
    aggregate = Aggregate()
    with (
        penstock.connect(args.dir, name="demo receiver") as client,
        client.add_subscription(args.channel, args.stream) as subscription,
    ):
        report({"listening": subscription.local_addresses[0]})
        heard = reported = time.monotonic()
        while True:
            # Taken before the poll: at the end of the stream and nothing came means all came.
            ended = any(image.is_end_of_stream for image in subscription.images)
            with subscription.poll_batch(limit=4096) as batch:
                count = len(batch)
                aggregate.add(batch)
            now = time.monotonic()
            if now - reported > REPORT_S:
                reported = now
                report({"records": aggregate.records})
            if count:
                heard = now
            elif ended:
                break
            elif now - heard > SILENCE_S:
                raise PenstockError(f"nothing arrived for {SILENCE_S:g} s")
            else:
                subscription.wait(REPORT_S)
    report({"result": aggregate.to_dict()})


def report(values: dict[str, Any]) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    sys.exit(reported(main))
