# SPDX-License-Identifier: Apache-2.0
"""Workloads of ``penstock bench``: daemons and clients in separate processes, measured by a
harness. The peers below ``bench/`` use the same protocol with the harness."""
