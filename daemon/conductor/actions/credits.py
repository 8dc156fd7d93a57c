# SPDX-License-Identifier: Apache-2.0
"""Actions on the credits of readers."""

from __future__ import annotations

import attrs

from penstock.daemon.conductor.actions.base import Action


@attrs.frozen(kw_only=True)
class SetImageCredits(Action):
    """Change the credits that a reader of an image grants. A new credit epoch begins when the
    number of credits decreases. A new credit epoch also begins each time the reader withholds its
    credits (``frozen``), and when the reader grants them again."""

    image_id: int
    position_counter_id: int
    credits: int                        # messages, at least 1
    burst: int                          # 0: as credits
    frozen: bool


@attrs.frozen(kw_only=True)
class SetPublicationCredits(Action):
    """Change the credits that a reader of a local publication grants. A new credit epoch begins in
    the same cases as with :class:`SetImageCredits`."""

    publication_id: int
    position_counter_id: int
    credits: int
    burst: int
    frozen: bool


@attrs.frozen(kw_only=True)
class ReadRoundTrip(Action):
    """Result: the smoothed round-trip time of an image in ns; 0: not known yet."""

    slot: int                           # of the image


@attrs.frozen(kw_only=True)
class ReadCredits(Action):
    """Result: :class:`penstock.core.credits.CreditView`."""

    slot: int                           # of the subscriber
