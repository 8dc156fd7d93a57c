# SPDX-License-Identifier: Apache-2.0
"""The virtual world: time, network, hosts and applications.

``World`` and ``run`` load on first use, so that a module of this folder can be imported alone.
"""
