# SPDX-License-Identifier: Apache-2.0
"""The owner of driver state, as a sans-I/O state machine (docs/decisions/0016)."""

from penstock.daemon.conductor.actions import Action, ActionError, Operation, Outcome
from penstock.daemon.conductor.conductor import Conductor
from penstock.daemon.conductor.settings import ConductorSettings

__all__ = ["Action", "ActionError", "Conductor", "ConductorSettings", "Operation", "Outcome"]
