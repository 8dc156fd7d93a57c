# SPDX-License-Identifier: Apache-2.0
"""Applications in the simulator: run unchanged functions of an application on simulated hosts, in
virtual time, with the product's compiled client (docs/testing-your-application.md)."""

from penstock.sim.applications.app import App, SimulationError
from penstock.sim.applications.simulation import Simulation

__all__ = ["App", "Simulation", "SimulationError"]
