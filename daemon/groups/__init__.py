# SPDX-License-Identifier: Apache-2.0
"""The part of the daemon's shell for consumer groups: sockets, logs and fetches."""
