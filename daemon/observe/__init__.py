# SPDX-License-Identifier: Apache-2.0
"""Observation of the daemon: status, samples, trace and metrics."""
