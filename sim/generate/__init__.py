# SPDX-License-Identifier: Apache-2.0
"""Generators: scenarios and grids drawn from a seed."""
