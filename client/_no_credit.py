# SPDX-License-Identifier: Apache-2.0
"""Choose how ``send`` treats a message for which the publisher has no credit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from penstock.client._offer import Offer
from penstock.core.credits import pub_credit_counts
from penstock.core.errors import InvalidArgument

if TYPE_CHECKING:
    from penstock.client._async_publication import AsyncPublication
    from penstock.client._publication import Publication


@attrs.frozen
class Route:
    """The value that :func:`route` returns: another publication. If there is no credit for a
    message, ``send`` publishes the message on this other publication."""

    publication: Publication | AsyncPublication


def route(publication: Publication | AsyncPublication) -> Route:
    """Return a value for the argument ``on_no_credit`` of ``send``. If there is no credit for a
    message, ``send`` then publishes this message on ``publication``."""
    return Route(publication)


#: Action of ``send`` if there is no credit for a message: wait for credit ("block"), drop the
#: message, or send it on another publication (a Route).
OnNoCredit: TypeAlias = Literal["block", "drop"] | Route


@attrs.frozen(kw_only=True)
class PublicationCredits:
    """Credits of a stream at one moment; all numbers count messages since the stream began. All
    publishers of a stream share its credits."""

    is_granted: bool
    """Whether a receiver grants credits. Without one the stream is not limited by credits."""
    granted: int
    """Messages that the receivers have granted; 0 without a grant."""
    spent: int
    """Messages for which publishers took a credit; 0 without a grant."""
    dropped: int
    """Messages that ``send(on_no_credit="drop")`` of this publication dropped."""
    routed: int
    """Messages that this publication sent elsewhere."""

    @property
    def available(self) -> int:
        """Number of messages that publishers may send now; 0 if no receiver grants credits."""
        return max(0, self.granted - self.spent)


@attrs.define
class Diverted:
    """Counts the messages for which a publication had no credit: ``dropped`` is the number that
    ``send`` dropped, ``routed`` the number that it published on another publication."""

    dropped: int = 0
    routed: int = 0
    ever_granted: bool = False


def credits_of(publication: Publication) -> PublicationCredits:
    """Return the present credits of a publication."""
    counts = pub_credit_counts(publication._open())
    diverted = publication._diverted
    diverted.ever_granted = diverted.ever_granted or counts is not None
    granted, spent = counts or (0, 0)
    return PublicationCredits(
        is_granted=counts is not None, granted=granted, spent=spent, dropped=diverted.dropped,
        routed=diverted.routed,
    )


def checked(on_no_credit: Any) -> OnNoCredit:
    """:raises InvalidArgument: the value is neither ``"block"``, ``"drop"`` nor a
        :class:`Route`."""
    if on_no_credit not in ("block", "drop") and not isinstance(on_no_credit, Route):
        raise InvalidArgument(
            f"on_no_credit is 'block', 'drop' or route(publication), not {on_no_credit!r}"
        )
    value: OnNoCredit = on_no_credit
    return value


def is_diverted(position: int, on_no_credit: OnNoCredit) -> bool:
    """Return True if ``send`` must drop a message or publish it elsewhere: an offer found no
    credit, and the caller chose not to wait for credit."""
    return position == Offer.NO_CREDIT and on_no_credit != "block"


def other_of(publication: Publication, on_no_credit: OnNoCredit) -> Any:
    """Count a message for which there was no credit. Return the other publication, which must send
    the message; None if ``send`` drops the message."""
    publication._diverted.ever_granted = True
    if not isinstance(on_no_credit, Route):
        publication._diverted.dropped += 1
        return None
    publication._diverted.routed += 1
    return on_no_credit.publication
