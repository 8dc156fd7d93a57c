# SPDX-License-Identifier: Apache-2.0
"""Actions that end an object of the sender or of the receiver."""

from __future__ import annotations

import attrs

from penstock.core.driver_types import ObjectKind
from penstock.daemon.conductor.actions.base import Action


@attrs.frozen(kw_only=True)
class RemoveObject(Action):
    """Request that the thread that owns an object (sender or receiver) releases the object. The
    thread answers with the event PS_EV_RELEASED."""

    kind: ObjectKind
    object_id: int
    keep_session: bool = False          # images only


@attrs.frozen(kw_only=True)
class DestroyObject(Action):
    """Free an object after the sender or the receiver has released it."""

    kind: ObjectKind
    object_id: int
