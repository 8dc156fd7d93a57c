# SPDX-License-Identifier: Apache-2.0
"""Which tests run beside each other.

Most tests wait more than they compute, so `make test` has two workers (pytest-xdist).  One has the
tests in network namespaces of their own; the other those on loopback, whose ports must not meet;
whoever ends first takes the rest, a file at a time.  A test marked ``alone`` measures times: it
waits until the other worker has ended its test, and the other waits for it.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

TESTS = Path(__file__).parent.parent
#: Folders whose tests run one after another, in the order in which they are begun.
GROUPS = {"cluster": "namespaces", "interop": "loopback", "loopback": "loopback"}


class Turns(LoadScopeScheduling):
    """A folder's or a file's tests go to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        path = Path(nodeid.partition("::")[0])
        return GROUPS.get(path.parts[1], str(path))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Turns:
    return Turns(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest groups first."""
    order = [*GROUPS]

    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(TESTS).parts[0]
        return order.index(folder) if folder in GROUPS else len(order)

    items.sort(key=rank)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Waits outside the test's own time-out."""
    if not hasattr(item.config, "workerinput"):
        return (yield)
    lock = TESTS.parent / "build" / "turns.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as file:
        alone = item.get_closest_marker("alone") is not None
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        return (yield)
