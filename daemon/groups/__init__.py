# SPDX-License-Identifier: Apache-2.0
"""Consumer groups in the daemon's shell: their socket, log facts and fetches."""
