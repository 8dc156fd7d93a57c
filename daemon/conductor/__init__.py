# SPDX-License-Identifier: Apache-2.0
"""The conductor owns the list of the daemon's objects and their states. The conductor is a state
machine that does no I/O itself (docs/decisions/0016)."""

from penstock.daemon.conductor.actions import Action, ActionError, Operation, Outcome
from penstock.daemon.conductor.conductor import Conductor
from penstock.daemon.conductor.settings import ConductorSettings

__all__ = ["Action", "ActionError", "Conductor", "ConductorSettings", "Operation", "Outcome"]
