# SPDX-License-Identifier: Apache-2.0
"""One session that a relay reads, and the publication on which the relay publishes it.

Before each offer, the relay records the end of the message in the source. After each offer, it
records how far it is. If the relay dies in between, the next process counts the messages in the
target's log: the target has the message, or it does not have it. The next process then continues
behind this message, or with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.client._batch_sender import TURNS
from penstock.client._offer import TRANSIENT, Offer
from penstock.core.client import img_count
from penstock.core.errors import ClosedError, PublicationFailed
from penstock.core.relay import UNKNOWN, img_ordinal, img_relay_to, img_take_over, pub_take_over

if TYPE_CHECKING:
    from penstock.client._image import Image
    from penstock.client._message import Header
    from penstock.client._publication import Publication
    from penstock.client._relay_state import Cell
    from penstock.client._restart import Gap

_LIMIT: Final = 256                     # messages of one leg before the next has its turn
_WAITS: Final = (*TRANSIENT, Offer.NOT_CONNECTED, Offer.DAEMON_AWAY)


class _Refused(Exception):
    """The target does not accept a message now; the source delivers it again."""


def poll(image: Image, handler: Callable[[memoryview, Header], None]) -> int:
    """Poll an image. A notice that the poll applies first may end the image: nothing is left."""
    try:
        return image.poll(handler, _LIMIT)
    except ClosedError:
        if image.is_closed:
            return 0
        raise


class Leg:
    """One session of the source, and its publication."""

    def __init__(self, image: Image, publication: Publication, cell: Cell) -> None:
        self.image = image
        self.publication = publication
        self.cell = cell
        self.source = image.position    # end of the last message or gap of the source
        self.source_ordinal = UNKNOWN   # number of messages below
        self.joined: int | None = None  # until the first message or gap: where it began to count
        self.target = publication.position
        self.ordinal = 0                # number of messages below
        self.skip_to = 0                # source position below which it has all messages
        self.waits = False
        self.passed = False             # the last step passed over a gap
        img_relay_to(image._open(), publication._ready.publication_slot)
        self.messages = 0
        self.bytes = 0

    def begin(self) -> None:
        self._learn()
        self.joined = self.image.position
        self._record()

    def go_on(self) -> None:
        """Continue to relay a session at the message where the last process of this relay
        stopped."""
        point = self.cell.read()
        found = pub_take_over(self.publication._open(), point.target, point.ordinal)
        self.source, self.source_ordinal = point.source, point.source_ordinal
        if found:                       # it had published one more message
            self.source = self.cell.intent
            self._count(found)
        img_take_over(self.image._open(), self.source, self.source_ordinal)
        self.target = self.publication.position
        self.ordinal = point.ordinal + found
        self._record()

    def step(self) -> bool:
        """Relay some messages. Returns whether there were any, or a gap: a poll ends at a gap, and
        messages behind the gap may be there already, for which nothing wakes the relay."""
        before = self.messages
        self.passed = False
        if self.waits:
            self.publication._want_room()
        self.waits = False
        if self.source_ordinal == UNKNOWN:
            self._learn()
        try:
            handled = poll(self.image, self._take)
        except _Refused:
            self.waits = True
            return self.messages != before
        return handled > 0 or self.passed

    def pass_over(self, gap: Gap) -> None:
        """Messages of the source are missing. A next process does not read the gap again."""
        self.passed = True
        if gap.to_position is None or gap.to_position <= self.source:
            return
        self._count_rest(gap.from_position)
        self.source = gap.to_position
        if gap.messages is None:
            self.source_ordinal = UNKNOWN
        else:
            self._count(gap.messages)
        self._record()

    def _learn(self) -> None:
        self.source_ordinal = img_ordinal(self.image._open())
        if self.joined is not None:
            self.joined = self.image.position

    def _count_rest(self, position: int) -> None:
        """Count the message in whose middle the relay joined: no reader gets its rest.

        :param position: begin of the first message or gap.
        """
        if self.joined is None:
            return
        rest = img_count(self.image._open(), self.joined, position)
        self.joined = None
        if rest < 0:
            self.source_ordinal = UNKNOWN
        else:
            self._count(rest)

    def _count(self, messages: int) -> None:
        if self.source_ordinal != UNKNOWN:
            self.source_ordinal += messages

    def _record(self) -> None:
        self.cell.write(self.source, self.target, self.ordinal, self.source_ordinal)

    def _take(self, message: memoryview, header: Header) -> None:
        position = header.position
        self._count_rest(header.start_position)
        if position > self.skip_to:
            self.cell.intend(position)
            self._offer(message, header.reserved_value)
        self.source = position
        self._count(1)
        # Before the source can release the message: it is released when the poll ends.
        self._record()

    def _offer(self, message: memoryview, reserved_value: int) -> None:
        for _ in range(TURNS):
            position = self.publication.offer(message, reserved_value=reserved_value)
            if position != Offer.ADMIN_ACTION:
                break
        if position <= 0:
            raise self._refusal(position)
        self.target = position
        self.ordinal += 1
        self.messages += 1
        self.bytes += len(message)

    def _refusal(self, code: int) -> Exception:
        if code in _WAITS:
            return _Refused()
        publication = self.publication
        return PublicationFailed(
            f"the relay's target, stream {publication.stream_id} on {publication.channel}, accepts "
            f"no more: {Offer(code).name}", code=code,
        )
