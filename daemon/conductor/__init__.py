# SPDX-License-Identifier: Apache-2.0
"""The conductor owns the state of the driver, and is a state machine without I/O
(docs/decisions/0016)."""

from penstock.daemon.conductor.actions import Action, ActionError, Operation, Outcome
from penstock.daemon.conductor.conductor import Conductor
from penstock.daemon.conductor.settings import ConductorSettings

__all__ = ["Action", "ActionError", "Conductor", "ConductorSettings", "Operation", "Outcome"]
