# SPDX-License-Identifier: Apache-2.0
"""What the daemon shows: status, samples, trace and metrics."""
