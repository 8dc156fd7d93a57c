# SPDX-License-Identifier: Apache-2.0
"""Reads what a Spark sink publishes: ``python -m cluster.spark_receiver --dir=D --channel=C ...``.

Reports each complete part, now and then that some are open, once that none is open any more, and at
the end what was counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time

import attrs

import penstock
from penstock.spark_bridge import committed


def say(event: str, **values: object) -> None:
    print(json.dumps({"event": event, **values}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--channel", required=True)
    parser.add_argument("--stream", type=int, required=True)
    parser.add_argument("--values", action="store_true", help="report the messages too")
    parser.add_argument("--head", action="store_true", help="messages are numbered: report those")
    args = parser.parse_args()
    notified = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), notified.set()), daemon=True).start()
    with penstock.connect(args.dir, name="receiver") as client:
        subscription = client.add_subscription(args.channel, args.stream)
        say("listening")
        were_open = False
        reader = committed(subscription, timeout_s=0.05)
        while not notified.is_set():
            opened = [part for part in reader.partial if part.reason == "open"]
            if opened or were_open:
                say(
                    "open", at_ns=time.time_ns(), parts=len(opened),
                    partial=reader.statistics.partial,
                )
            were_open = bool(opened)
            for part in reader:
                values: list[object] = []
                if args.head:
                    values = [int.from_bytes(m[:8], "little") for m in part.messages]
                elif args.values:
                    values = [m.decode() for m in part.messages]
                say(
                    "part", query=str(part.query), epoch=part.epoch, partition=part.partition,
                    key=part.key.decode(), messages=len(part.messages), values=values,
                )
        say(
            "counted", **attrs.asdict(reader.statistics),
            reasons=[part.reason for part in reader.partial],
        )


if __name__ == "__main__":
    main()
