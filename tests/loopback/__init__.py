# SPDX-License-Identifier: Apache-2.0
"""Tests with real daemons and real sockets on the loopback interface."""
