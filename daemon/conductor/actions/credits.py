# SPDX-License-Identifier: Apache-2.0
"""Actions on the credits of readers."""

from __future__ import annotations

import attrs

from penstock.daemon.conductor.actions.base import Action


@attrs.frozen(kw_only=True)
class SetImageCredits(Action):
    """Change the credits that a reader of an image grants. A new epoch of the credits begins when
    their number decreases, when they are frozen, and when the freeze ends."""

    image_id: int
    position_counter_id: int
    credits: int                        # messages, at least 1
    burst: int                          # 0: as credits
    frozen: bool


@attrs.frozen(kw_only=True)
class SetPublicationCredits(Action):
    """Change the credits that a reader of a local publication grants. A new epoch begins in the
    same cases as with :class:`SetImageCredits`."""

    publication_id: int
    position_counter_id: int
    credits: int
    burst: int
    frozen: bool


@attrs.frozen(kw_only=True)
class ReadCredits(Action):
    """Result: :class:`penstock.core.credits.CreditView`."""

    slot: int                           # of the subscriber
