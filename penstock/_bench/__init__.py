# SPDX-License-Identifier: Apache-2.0
"""Workloads of ``penstock bench``: a harness starts daemons and clients in separate processes and
measures them. The folder ``bench/`` has clients of other products, which exchange the same lines of
text with the harness."""
