# SPDX-License-Identifier: Apache-2.0
"""Base types of actions. An action is a frozen value; an operation is an action in progress; an
outcome contains its result."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Action:
    """Base of all actions."""


@attrs.frozen
class Operation:
    """An action in progress. If ``operation_id`` is 0, no saga waits for the result of the
    action."""

    operation_id: int
    action: Action


@attrs.frozen(kw_only=True)
class ActionError:
    """Reason of a failed action: a control-protocol error code and one sentence."""

    code: str
    message: str


@attrs.frozen(kw_only=True)
class Outcome:
    """Result of an action: Result of an operation; ``error`` is None if the action succeeded."""

    value: Any = None
    error: ActionError | None = None
