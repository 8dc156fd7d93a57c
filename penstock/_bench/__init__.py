# SPDX-License-Identifier: Apache-2.0
"""Workloads of ``penstock bench``: a harness starts daemons and clients in separate processes and
measures them. Harness and clients exchange lines of text. The folder ``bench/`` has clients of
other messaging products that use the same lines."""
