# SPDX-License-Identifier: Apache-2.0
"""For every test: Ctrl-C reaches the programs under test also where a shell started the run in the
background, which ignores the signal and would have all children ignore it; and no example of a
property is wrong for having been slow on a busy machine."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings
from support.not_run import need_java

pytest_plugins = ["support.turns"]

settings.register_profile("penstock", deadline=None)


def pytest_configure() -> None:
    settings.load_profile("penstock")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def java() -> None:
    """Spark can run here."""
    need_java()
