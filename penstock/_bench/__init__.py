# SPDX-License-Identifier: Apache-2.0
"""Workloads of ``penstock bench``: daemons and clients in separate processes, measured by a
harness. The clients of other products, in ``bench/``, exchange the same messages with the
harness."""
