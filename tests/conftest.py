# SPDX-License-Identifier: Apache-2.0
"""For every test: Ctrl-C reaches the programs under test also where a shell started the run in the
background, which ignores the signal and would have all children ignore it; and no example of a
property is wrong for having been slow on a busy machine."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from support.java import quick_java
from support.not_run import need_java

pytest_plugins = ["support.turns"]

settings.register_profile("penstock", deadline=None)


def pytest_configure() -> None:
    settings.load_profile("penstock")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def java() -> Iterator[None]:
    """Spark can run here, and starts quickly."""
    need_java()
    with pytest.MonkeyPatch.context() as environment:
        for name, value in quick_java().items():
            environment.setenv(name, value)
        yield
