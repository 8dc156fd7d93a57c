# SPDX-License-Identifier: Apache-2.0
"""Default times of a client, in seconds."""

from __future__ import annotations

from typing import Final

#: Longest wait for a daemon.
DEFAULT_TIMEOUT_S: Final = 5.0
#: Shortest time-out of an exchange: the daemon needs up to 5 s to refuse a slow strategy.
LEAST_ANSWER_S: Final = 10.0
#: Longest wait for a new daemon after the old one died.
DEFAULT_REATTACH_S: Final = 30.0
