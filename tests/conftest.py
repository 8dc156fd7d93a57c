# SPDX-License-Identifier: Apache-2.0
"""For every test: Ctrl-C reaches the programs under test also where a shell started the run in the
background, which ignores the signal and would have all children ignore it."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
