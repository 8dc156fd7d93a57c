# SPDX-License-Identifier: Apache-2.0
"""Workloads of ``penstock bench``: a harness starts daemons and clients in separate processes and
measures them. The clients of other products, in ``bench/``, exchange the same messages with the
harness."""
