# SPDX-License-Identifier: Apache-2.0
"""Consumer groups in the daemon's shell: their sockets, their logs and fetches."""
