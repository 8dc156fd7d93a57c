# SPDX-License-Identifier: Apache-2.0
"""Codes of refused offers, and the results that handlers of ``controlled_poll`` return."""

from __future__ import annotations

import enum
from typing import Final


class Offer(enum.IntEnum):
    """Reason of a refused offer. If an offer is refused for several reasons, ``offer`` returns the
    code that comes first in the table of ``docs/offer-codes.md``.

    The codes from -1 to -5 are the codes of Aeron's ``offer``.
    """

    NOT_CONNECTED = -1
    """No receiver; retry when one joins."""
    BACK_PRESSURED = -2
    """The stream is at its limit; retry when receivers have caught up."""
    ADMIN_ACTION = -3
    """The log is changing terms; retry at once."""
    CLOSED = -4
    """The publication was closed."""
    MAX_POSITION_EXCEEDED = -5
    """The positions of this session are used up; add a new publication."""
    NO_CREDIT = -100
    """The receivers granted no more messages."""
    THROTTLED = -101
    """The daemon is overloaded; retry after ``retry_after_s``."""
    RATE_LIMITED = -102
    """The stream's rate is used up; retry later."""
    DROPPED = -103
    """The stream's policy dropped the message."""
    FAILED = -104
    """The stream's policy failed the publication."""
    STORAGE = -105
    """The next term has no memory yet; retry, and free shared memory if the code persists."""
    DAEMON_AWAY = -106
    """The daemon died."""


class Action(enum.Enum):
    """A handler of ``controlled_poll`` returns one of these values; the value decides how the poll
    continues."""

    CONTINUE = 0
    """Go on; release with the rest of the poll."""
    COMMIT = 1
    """Release up to and including this message now, then go on."""
    BREAK = 2
    """Stop after this message."""
    ABORT = 3
    """Stop before this message: it will be delivered again."""


#: Refusals that can pass: ``send`` waits while they apply.
TRANSIENT: Final = frozenset(
    {
        Offer.BACK_PRESSURED,
        Offer.ADMIN_ACTION,
        Offer.NO_CREDIT,
        Offer.THROTTLED,
        Offer.RATE_LIMITED,
        Offer.STORAGE,
    }
)

_BY_CODE: Final = {int(code): code for code in Offer}


def offer_code(position: int) -> Offer | None:
    """Return the :class:`Offer` code that equals ``position``, or None if ``position`` is not the
    value of a code."""
    return _BY_CODE.get(position)
