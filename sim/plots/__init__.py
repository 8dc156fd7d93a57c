# SPDX-License-Identifier: Apache-2.0
"""Plots of runs, traces and grids."""
