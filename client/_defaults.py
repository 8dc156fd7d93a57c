# SPDX-License-Identifier: Apache-2.0
"""Times that a client takes when the application names none; seconds."""

from __future__ import annotations

from typing import Final

#: Wait for a daemon, and then for each answer of it.
DEFAULT_TIMEOUT_S: Final = 5.0
#: Wait for the successor of a daemon that died.
DEFAULT_REATTACH_S: Final = 30.0
