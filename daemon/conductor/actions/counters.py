# SPDX-License-Identifier: Apache-2.0
"""Actions on counters of ``cnc.dat`` and slots of ``penstock.dat``."""

from __future__ import annotations

import attrs

from penstock.core.driver_types import SlotKind
from penstock.daemon.conductor.actions.base import Action


@attrs.frozen(kw_only=True)
class AllocateCounter(Action):
    """Result: int, the counter id."""

    type_id: int
    key: bytes
    label: str
    registration_id: int
    owner_id: int = 0
    reference_id: int = 0
    value: int = 0


@attrs.frozen(kw_only=True)
class FreeCounter(Action):
    counter_id: int


@attrs.frozen(kw_only=True)
class SetCounter(Action):
    counter_id: int
    value: int


@attrs.frozen(kw_only=True)
class ReadCounter(Action):
    """Result: int, its value."""

    counter_id: int


@attrs.frozen(kw_only=True)
class AddToSystemCounter(Action):
    counter_id: int
    delta: int = 1


@attrs.frozen(kw_only=True)
class AllocateSlot(Action):
    """Result: int, the slot's index."""

    kind: SlotKind
    object_id: int


@attrs.frozen(kw_only=True)
class FreeSlot(Action):
    kind: SlotKind
    index: int
    object_id: int = 0          # only if this client owns it; 0: in any case
