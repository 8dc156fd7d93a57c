# SPDX-License-Identifier: Apache-2.0
"""A publisher that does what standard input says, one word a line: a victim of the tests.

``offer N``, ``claim``, ``commit``, ``flood`` (offers for ever).  Its messages are
``stamped``: they say who sent them, which one they are, and can be checked byte for byte.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import penstock
from support import report


def stamped(name: str, number: int, size: int) -> bytes:
    """A message of at least ``size`` bytes that nothing else equals."""
    head = b"%s:%d:%d:" % (name.encode(), number, size)
    return head + bytes((number + k) % 251 for k in range(max(0, size - len(head))))


def read_stamp(message: bytes) -> tuple[str, int]:
    """Name and number of a stamped message; fails when a byte of it is wrong."""
    name, number, size, _rest = message.split(b":", 3)
    assert message == stamped(name.decode(), int(number), int(size)), message[:80]
    return name.decode(), int(number)


def by_name(messages: Iterable[bytes]) -> dict[str, list[int]]:
    """The numbers of each sender's messages, as they came."""
    result: dict[str, list[int]] = {}
    for message in messages:
        name, number = read_stamp(message)
        result.setdefault(name, []).append(number)
    return result


class _Actor:
    def __init__(self, publication: penstock.Publication, name: str, size: int) -> None:
        self._publication = publication
        self._name = name
        self._size = size
        self._number = 0
        self._claims: list[penstock.Claim] = []

    def _next(self) -> bytes:
        self._number += 1
        return stamped(self._name, self._number - 1, self._size)

    def offer(self, count: int) -> None:
        for _ in range(count):
            self._publication.send(self._next(), 60.0)
        report.event("offered", position=self._publication.position)

    def claim(self) -> None:
        message = self._next()
        claim = self._publication.try_claim(len(message))
        claim.buffer[:] = message
        self._claims.append(claim)
        report.event("claimed", position=claim.position)

    def commit(self) -> None:
        try:
            self._claims.pop(0).commit()
        except penstock.ClaimLost as error:
            report.event("lost", text=str(error))
        else:
            report.event("committed")

    def flood(self) -> None:
        for n in range(sys.maxsize):
            self._publication.send(self._next(), 60.0)
            if n == 100:
                report.event("flooding")

    def obey(self, line: str) -> None:
        match line.split():
            case ["offer", count]:
                self.offer(int(count))
            case ["claim"]:
                self.claim()
            case ["commit"]:
                self.commit()
            case ["flood"]:
                self.flood()


def main() -> int:
    parser = report.parser()
    parser.add_argument("--name", default="victim")
    parser.add_argument("--size", type=int, default=40)
    parser.add_argument("--exclusive", action="store_true")
    args = parser.parse_args()
    with penstock.connect(args.dir, name=args.name) as client:
        add = client.add_exclusive_publication if args.exclusive else client.add_publication
        with add(args.channel, args.stream) as publication:
            report.event("added", session=publication.session_id)
            if not publication.wait_connected(args.timeout_s):
                report.event("timeout", what="connect")
                return 3
            report.event("connected", session=publication.session_id)
            actor = _Actor(publication, args.name, args.size)
            for line in sys.stdin:
                actor.obey(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
