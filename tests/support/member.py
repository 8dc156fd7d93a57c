# SPDX-License-Identifier: Apache-2.0
"""A member of a consumer group as a process: reports each batch, commits as it is told.

    python -m support.member --dir=DIR --channel=C --stream=N --name=NAME --limit=N --commit=N \\
        [--credits=N]

Commits the first ``--commit`` batches, reports each as "batch" after that, and holds the next.
"""

from __future__ import annotations

import argparse
import json
import sys

import penstock


def report(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("dir", "channel", "name"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("stream", "limit", "commit"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--credits", type=int)
    args = parser.parse_args()
    with penstock.connect(args.dir, name="member") as client:
        group = client.consumer_group(
            args.name, args.channel, args.stream, credits=args.credits
        )
        report("joined")
        for number, batch in enumerate(group.messages(args.limit)):
            texts = [message.decode() for message in batch]
            if number == args.commit:
                report("held", messages=texts)
                sys.stdin.read()
                return
            batch.commit()
            report("batch", messages=texts)


if __name__ == "__main__":
    main()
