# SPDX-License-Identifier: Apache-2.0
"""A client that publishes and polls on a few streams until its standard input ends.

Its shared memory is being damaged meanwhile (``test_scribble.py``), so every typed error is fine:
the client drops the stream and adds it again."""

from __future__ import annotations

import argparse
import select
import sys

import penstock

CHANNELS = ("aeron:ipc?term-length=64k", "aeron:udp?endpoint=127.0.0.1:{port}|term-length=64k")


class Stream:
    """A publication and its readers, made again after each error."""

    def __init__(self, client: penstock.Client, channel: str, number: int) -> None:
        self._client = client
        self._channel = channel
        self._number = number
        self._open: list[penstock.Publication | penstock.Subscription] = []

    def step(self) -> None:
        try:
            if not self._open:
                self._make()
            publication, *readers = self._open
            assert isinstance(publication, penstock.Publication)
            for size in (0, 40, 3000):
                publication.offer(bytes(size))
            for reader in readers:
                assert isinstance(reader, penstock.Subscription)
                reader.poll(lambda message, header: None, 64)
        except penstock.PenstockError:
            self._drop()

    def _make(self) -> None:
        add = (
            self._client.add_exclusive_publication
            if self._number % 2
            else self._client.add_publication
        )
        self._open.append(add(self._channel, self._number))
        self._open.append(self._client.add_subscription(self._channel, self._number))
        if "udp" in self._channel:
            spied = f"aeron-spy:{self._channel}"
            self._open.append(self._client.add_subscription(spied, self._number))

    def _drop(self) -> None:
        while self._open:
            try:
                self._open.pop().close()
            except penstock.PenstockError:
                continue


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    with penstock.connect(args.dir, name="restless") as client:
        streams = [
            Stream(client, channel.format(port=args.port), 10 * place + number)
            for place, channel in enumerate(CHANNELS) for number in range(2)
        ]
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            for stream in streams:
                stream.step()
    return 0


if __name__ == "__main__":
    sys.exit(main())
