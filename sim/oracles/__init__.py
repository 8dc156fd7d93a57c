# SPDX-License-Identifier: Apache-2.0
"""Oracles: conditions that a simulated run must meet."""
