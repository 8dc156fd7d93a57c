# SPDX-License-Identifier: Apache-2.0
"""Workloads of ``penstock bench``: daemons and clients as processes of their own, measured from
outside. The peers below ``bench/`` speak the same protocol to the same harness."""
