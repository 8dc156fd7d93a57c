# SPDX-License-Identifier: Apache-2.0
"""Channels in the conductor: convert a URI to a plan, to sockets and to counters."""
