# SPDX-License-Identifier: Apache-2.0
"""The daemon's control plane: conductor, control socket, leases, inspection and metrics."""
