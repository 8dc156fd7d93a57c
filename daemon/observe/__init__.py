# SPDX-License-Identifier: Apache-2.0
"""The daemon as observers see it: status, samples, trace and metrics."""
