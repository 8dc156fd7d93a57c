# SPDX-License-Identifier: Apache-2.0
"""The demonstration: a year of flights out of New York, carried over a lossy network and counted on
the other side.  Run it with ``make demo``."""
