# SPDX-License-Identifier: Apache-2.0
"""The control plane: conductor, control socket, liveness, inspection, metrics."""
