# SPDX-License-Identifier: Apache-2.0
"""An operator that writes checkpoints: while it saves its state, nothing is in flight to it.

    penstock up
    python examples/checkpoint.py
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections import Counter
from pathlib import Path

import penstock

CHANNEL, STREAM = "aeron:ipc", 70
EVENTS = 5000
EVERY = 1000


class WordCount:
    """The operator: it counts words, and saves its counts with the number of its input."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.counts: Counter[str] = Counter()
        self.seen = 0

    def on_message(self, message: memoryview, _header: penstock.Header) -> None:
        """Process one message; its credit returns after that."""
        self.counts[bytes(message).decode()] += 1
        self.seen += 1

    def save(self) -> None:
        """Write a checkpoint; a crash leaves the one before."""
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps({"seen": self.seen, "counts": self.counts}))
        new.replace(self._file)


def publish(client: penstock.Client) -> None:
    """Send all events; without credit the publisher waits and produces nothing."""
    with client.add_publication(CHANNEL, STREAM) as publication:
        for number in range(EVENTS):
            publication.send(b"word%d" % (number % 7), timeout_s=60.0)


def main() -> None:
    """Count words with a checkpoint after every thousand or so, and check the last one."""
    with tempfile.TemporaryDirectory() as folder, penstock.connect() as client:
        file = Path(folder, "checkpoint.json")
        operator, saved = WordCount(file), 0
        with client.add_subscription(CHANNEL, STREAM, credits=100) as subscription:
            publisher = threading.Thread(target=publish, args=(client,))
            publisher.start()
            while operator.seen < EVENTS:
                subscription.wait(timeout_s=60.0)
                subscription.poll(operator.on_message)
                if operator.seen - saved >= EVERY or operator.seen == EVENTS:
                    # the messages in flight arrive first; then every sent message is counted
                    subscription.withhold(60.0, operator.on_message)
                    operator.save()
                    saved = operator.seen
                    subscription.resume()
            publisher.join()
        checkpoint = json.loads(file.read_text())
        print("checkpoint of", checkpoint["seen"], "events,", len(checkpoint["counts"]), "words")


if __name__ == "__main__":
    main()
