# SPDX-License-Identifier: Apache-2.0
"""Times that a client takes when the application names none; seconds."""

from __future__ import annotations

from typing import Final

#: Wait for a daemon.
DEFAULT_TIMEOUT_S: Final = 5.0
#: Wait for an answer of the daemon, at least: the daemon takes up to 5 s to refuse a slow strategy.
LEAST_ANSWER_S: Final = 10.0
#: Wait for a new daemon after the death of the old one.
DEFAULT_REATTACH_S: Final = 30.0
