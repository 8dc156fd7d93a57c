# SPDX-License-Identifier: Apache-2.0
"""An action is a frozen value. An operation contains an action, and an outcome has its result."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Action:
    """Base of all actions."""


@attrs.frozen
class Operation:
    """An action in progress; ``operation_id`` 0: no saga waits for its result."""

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
