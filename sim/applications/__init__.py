# SPDX-License-Identifier: Apache-2.0
"""Applications in the simulator: run unchanged functions of an application on simulated hosts, in
virtual time, on the compiled client of the product (docs/testing-your-application.md)."""

from penstock.sim.applications.app import App, SimulationError
from penstock.sim.applications.simulation import Simulation

__all__ = ["App", "Simulation", "SimulationError"]
