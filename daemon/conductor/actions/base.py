# SPDX-License-Identifier: Apache-2.0
"""Base types of actions. Define actions, operations (actions in progress), and outcomes (results of
operations)."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Action:
    """Base of all actions."""


@attrs.frozen
class Operation:
    """An action in progress. If ``operation_id`` is 0, the conductor does not wait for the result
    of the action."""

    operation_id: int
    action: Action


@attrs.frozen(kw_only=True)
class ActionError:
    """Reason of a failed action: a control-protocol error code and one sentence."""

    code: str
    message: str


@attrs.frozen(kw_only=True)
class Outcome:
    """Result of an operation; ``error`` is None if the action succeeded."""

    value: Any = None
    error: ActionError | None = None
