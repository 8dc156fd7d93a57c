# SPDX-License-Identifier: Apache-2.0
"""Convert a channel URI to a plan (checked settings with all defaults), and find the sockets and
counters for the plan."""
