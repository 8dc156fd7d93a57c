# SPDX-License-Identifier: Apache-2.0
"""Send a batch of messages, and wait for room in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.client._offer import Offer
from penstock.client._pressure import Rest

if TYPE_CHECKING:
    from penstock.client._batches import Block
    from penstock.client._publication import Publication

TURNS: Final = 16
"""Offers in a row while a term turns."""


class BatchSender:
    """A batch of messages that a publication is sending."""

    def __init__(self, publication: Publication, block: Block, wait_connected: bool) -> None:
        self._publication = publication
        self._block = block
        self._wait_connected = wait_connected
        self._done = 0
        self.rest = Rest(publication)
        self.position = publication.position
        """Position after the last message that was accepted, or the code of a refusal."""

    @property
    def is_done(self) -> bool:
        """Whether every message was accepted."""
        return self._done == self._block.count

    def attempt(self) -> bool:
        """Offer the remaining messages of the batch. Return True if all messages were sent, and
        False if the caller must wait for room or a receiver and try again."""
        publication = self._publication
        publication._want_room()
        for _ in range(TURNS):
            accepted, self.position = publication._offer_block(self._block, self._done)
            self._done += accepted
            if self.position == Offer.DROPPED:      # all that were left
                self._done = self._block.count
            if self.position != Offer.ADMIN_ACTION:
                break
        self.rest.note(self.position)
        return self.is_done or publication._settled(
            self.position, self._wait_connected, more=True
        )
