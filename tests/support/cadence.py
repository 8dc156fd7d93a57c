# SPDX-License-Identifier: Apache-2.0
"""A publisher of a fixed rate, and readers that take whole batches at a fixed cadence and keep
account of what they get: a cell of ``penstock sim grid`` on sockets.

Messages are numbered.  A reader adds up the Gaps that it was told before each message: they must
count exactly the numbers that are missing there.  At a line on standard input the publisher begins,
and a reader takes the rest as fast as it can.  Times are those of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import os
import select
import struct
import sys
import time

import attrs

import penstock
from support import report

_HEADER = struct.Struct("<qq")          # number; 1: behind all that is judged
_TURN_S = 0.0005
_TAIL_S = 0.02
_LEAST_SIZE = 32


def _said_something() -> bool:
    return bool(select.select([0], [], [], 0)[0])


@attrs.define
class Publisher:
    """Offers what is due, and nothing later of what was refused."""

    publication: penstock.Publication
    message: bytearray
    rate: float                         # messages a second
    burst: float                        # messages at once, if it was not run in time
    sent: int = 0
    due: float = 0.0                    # offered in all

    def until(self, end_s: float) -> None:
        """Goes on to the moment."""
        before_s, credit = time.monotonic(), 0.0
        while (now_s := time.monotonic()) < end_s:
            fresh = min((now_s - before_s) * self.rate, self.burst)
            self.due += fresh
            credit = min(credit + fresh, self.burst)
            before_s = now_s
            while credit >= 1 and self.offer(0):
                credit -= 1
            time.sleep(_TURN_S)

    def offer(self, last: int) -> bool:
        _HEADER.pack_into(self.message, 0, self.sent, last)
        taken = self.publication.offer(self.message) > 0
        self.sent += taken
        return taken


def _signals(client: penstock.Client) -> int:
    return int(client.status()["publications"][0]["pressure_signals"])


def publish(
    client: penstock.Client, channel: str, size: int, rate: float, burst: float, warm_s: float,
    length_s: float,
) -> None:
    """Reports "connected"; after a line "done" with what was judged; a trickle until the end of
    standard input tells readers where the stream stands."""
    with client.add_publication(channel, 1001) as publication:
        if not publication.wait_connected(60):
            report.event("timeout", what="connect")
            return
        publisher = Publisher(publication, bytearray(size), rate, burst)
        report.event("connected", session=publication.session_id)
        os.read(0, 1)
        begin_s = time.monotonic()
        publisher.until(begin_s + warm_s)
        warm = {"warmSent": publisher.sent, "warmAt": time.monotonic_ns(),
                "warmSignals": _signals(client)}
        due = publisher.due
        publisher.until(begin_s + length_s)
        report.event(
            "done", **warm, sent=publisher.sent, at=time.monotonic_ns(),
            offered=publisher.due - due, signals=_signals(client),
        )
        while not select.select([0], [], [], _TAIL_S)[0]:
            publisher.offer(1)
        report.event("end", sent=publisher.sent, signals=_signals(client))


@attrs.define
class Reader:
    """The account of a reader."""

    expected: int = -1                  # before the first message: any
    messages: int = 0
    told: int = 0                       # by Gaps since the last message
    unknown: int = 0                    # Gaps that do not count
    ended: bool = False
    holes: list[tuple[int, int]] = attrs.field(factory=list)        # first missing number, count
    wrong: list[tuple[int, int, int]] = attrs.field(factory=list)   # expected, got, told
    turns: list[tuple[int, int]] = attrs.field(factory=list)        # time, messages taken

    def take(self, message: memoryview, _header: penstock.Header) -> None:
        number, last = _HEADER.unpack_from(message)
        if self.expected not in (-1, number):
            self.holes.append((self.expected, number - self.expected))
        if self.expected >= 0 and number - self.expected != self.told:
            self.wrong.append((self.expected, number, self.told))
        self.expected, self.told = number + 1, 0
        self.messages += 1
        self.ended = self.ended or bool(last)

    def gap(self, gap: penstock.Gap) -> None:
        if gap.messages is None:
            self.unknown += 1
        else:
            self.told += gap.messages

    def turn(self, subscription: penstock.Subscription, batch: int) -> None:
        """Takes up to a batch."""
        begin, left = time.monotonic_ns(), batch
        while left > 0 and (taken := subscription.poll(self.take, limit=left)):
            left -= taken
        self.turns.append((begin, batch - left))


def read(client: penstock.Client, channel: str, batch: int, cadence_ns: int) -> None:
    """Reports "added", "image" and, once the trickle has come, "done" with the account."""
    reader = Reader()
    with client.add_subscription(
        channel, 1001, on_gap=reader.gap,
        on_available=lambda image: report.event("image", session=image.session_id),
    ) as subscription:
        report.event("added")
        subscription.wait(60)
        due_ns = time.monotonic_ns()
        while batch and not _said_something():
            reader.turn(subscription, batch)
            # A turn that was missed is not made up for.
            due_ns = max(due_ns, time.monotonic_ns() - cadence_ns) + cadence_ns
            time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
        paced = len(reader.turns)
        while not reader.ended:
            reader.turn(subscription, 256)
            subscription.wait(1)
        report.event("done", **attrs.asdict(attrs.evolve(reader, turns=reader.turns[:paced])))
        while os.read(0, 1):
            pass


def main() -> int:
    parser = report.parser()
    parser.add_argument("--size", type=int, default=_LEAST_SIZE)
    parser.add_argument("--rate", type=float, default=0)
    parser.add_argument("--burst", type=float, default=1)
    parser.add_argument("--warm-s", type=float, default=0)
    parser.add_argument("--length-s", type=float, default=0)
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--cadence-ns", type=int, default=0)
    args = parser.parse_args()
    with penstock.connect(args.dir) as client:
        if args.rate:
            publish(
                client, args.channel, max(_LEAST_SIZE, args.size), args.rate, args.burst,
                args.warm_s, args.length_s,
            )
        else:
            read(client, args.channel, args.batch, args.cadence_ns)
    return 0


if __name__ == "__main__":
    sys.exit(main())
