# SPDX-License-Identifier: Apache-2.0
"""Publishes numbered messages: ``python -m cluster.spark_publisher --dir=D --channel=C ...``.

Each message is its number and the time when it was offered (two int64), padded to its size.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import threading
import time

import penstock
from penstock.core.errors import TimeoutExpired

#: Head of each message: its number, and when it was offered.
HEAD = struct.Struct("<qq")


def say(event: str, **values: object) -> None:
    print(json.dumps({"event": event, **values}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--channel", required=True)
    parser.add_argument("--stream", type=int, default=1001)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second; 0: no limit")
    parser.add_argument("--seconds", type=float, default=0.0, help="stop after so long; 0: never")
    parser.add_argument("--timeout", type=float, default=120.0, help="longest wait for room")
    parser.add_argument("--patient", action="store_true", help="report such waits, and go on")
    parser.add_argument("--until-told", action="store_true", help="stop when the input ends")
    parser.add_argument("--step", action="store_true", help="a message for each line of the input")
    parser.add_argument("--linger", action="store_true", help="keep the session until told")
    parser.add_argument("--log", help="a file: when each message was offered, and accepted")
    args = parser.parse_args()
    log = open(args.log, "wb") if args.log else None  # noqa: SIM115
    notified = threading.Event()
    if args.until_told:
        threading.Thread(target=lambda: (sys.stdin.read(), notified.set()), daemon=True).start()
    padding = bytes(args.size - HEAD.size)
    with penstock.connect(args.dir, name="publisher") as client:
        pub = client.add_exclusive_publication(args.channel, args.stream)
        say("up", session=pub.session_id)
        if not pub.wait_connected(args.timeout):
            say("timeout", what="connection")
            sys.exit(1)
        begun = last = time.monotonic()
        number = args.first
        while number < args.first + args.count and not notified.is_set():
            now = time.monotonic()
            if args.seconds and now - begun > args.seconds:
                break
            if now - last > 1.0:
                last = now
                say("sent", number=number)
            if args.step and not sys.stdin.readline():
                break
            if args.rate:
                due = begun + (number - args.first) / args.rate
                if due > now:
                    time.sleep(due - now)
            try:
                offered = time.time_ns()
                pub.send(HEAD.pack(number, offered) + padding, args.timeout)
            except TimeoutExpired as error:
                say("held" if args.patient else "timeout", what=str(error), number=number)
                if args.patient:
                    continue
                sys.exit(1)
            number += 1
            if log is not None:
                log.write(HEAD.pack(offered, time.time_ns()))
        if log is not None:
            log.close()
        say(
            "done", count=number - args.first, seconds=time.monotonic() - begun,
            blocked_ns=pub.pressure().total_ns, culprits=dict(pub.pressure().blocked_by_ns),
            causes=dict(pub.pressure().blocked_ns), session=pub.session_id,
        )
        if args.linger:
            sys.stdin.readline()


if __name__ == "__main__":
    main()
