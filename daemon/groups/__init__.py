# SPDX-License-Identifier: Apache-2.0
"""The service for consumer groups in the daemon: sockets, logs and fetches."""
