# SPDX-License-Identifier: Apache-2.0
"""Which tests run beside each other.

Most tests wait more than they compute, so `make test` has more workers (pytest-xdist) than the
machine has processors.  As root each worker has a network of its own (``own_network``), so that
ports do not meet, and takes a file at a time.  Other users have two workers: one has the tests in
network namespaces, the other those on loopback.

Tests marked ``alone`` measure times: one worker runs them first, and the others wait.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from support import own_network

#: Of workers that have networks of their own.
WORKERS = 3
#: Tests of one worker, by the beginnings of their paths; what takes longest begins first.
GROUPS = {
    # They share Spark's cluster, also with one that is alone: the worker that had it goes on here.
    "tests/cluster/test_spark_": "cluster",
    "tests/native/": "native",
    "tests/fuzz/": "native",                        # they build in one folder
    "tests/unit/test_page_sizes.py": "native",
    "tests/loopback/test_spark_": "spark",          # they share a JVM
    "tests/loopback/test_examples.py": "",
    "tests/loopback/test_demo.py": "",
    "tests/loopback/test_extras.py": "wheels",
    "tests/loopback/test_wheel_tag.py": "wheels",   # they build in one folder
    "tests/sim/test_fuzz.py": "",                   # the longest file of the simulator
    "tests/loopback/": "",
    "tests/cluster/": "",
    "tests/interop/": "",
    "tests/sim/": "",
}
#: The same, where all workers have the machine's network.
SHARED_GROUPS = {
    "tests/cluster/": "cluster", "tests/interop/": "loopback", "tests/loopback/": "loopback",
    "tests/native/": "native", "tests/fuzz/": "native", "tests/unit/test_page_sizes.py": "native",
}
ALONE = "alone"


def _groups() -> dict[str, str]:
    return GROUPS if own_network.is_allowed() else SHARED_GROUPS


def _alone_file(config: pytest.Config) -> Path:
    """What a worker tells the scheduler, which knows the names of tests but not their markers."""
    return config.rootpath / "build" / "alone-tests"


class Turns(LoadScopeScheduling):
    """A group's or a file's tests go to one worker; nothing runs beside those that are alone."""

    _alone: frozenset[str] = frozenset()

    def schedule(self) -> None:
        self._alone = frozenset(_alone_file(self.config).read_text("utf-8").splitlines())
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        path, _, _ = nodeid.partition("::")
        if nodeid in self._alone:
            return ALONE
        for begin, group in _groups().items():
            if path.startswith(begin):
                return group or path
        return path

    def _is_held(self, node: WorkerController) -> bool:
        """Whether another worker has tests that nothing may run beside."""
        return any(
            other is not node and not all(units.get(ALONE, {}).values())
            for other, units in self.assigned_work.items()
        )

    def _assign_work_unit(self, node: WorkerController) -> None:
        if self.workqueue and not self._is_held(node):
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if not self._is_held(node):
            super()._reschedule(node)

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        held = [other for other in self.nodes if self._is_held(other)]
        super().mark_test_complete(node, item_index, duration)
        self._release(held)

    def remove_node(self, node: WorkerController) -> str | None:
        held = [other for other in self.nodes if self._is_held(other)]
        crashed = super().remove_node(node)
        self._release(held)
        return crashed

    def _release(self, held: list[WorkerController]) -> None:
        for _ in range(2):      # a worker begins a test when it knows the next one
            for node in held:
                self._reschedule(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Turns:
    return Turns(config, log)


def pytest_xdist_auto_num_workers() -> int:
    """For ``--numprocesses auto``."""
    return WORKERS if own_network.is_allowed() else 2


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") and own_network.is_allowed():
        own_network.enter()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest groups first."""
    begins = list(_groups())

    def rank(item: pytest.Item) -> int:
        if item.get_closest_marker("alone") is not None:
            return -1
        path = item.path.relative_to(config.rootpath).as_posix()
        return next((i for i, begin in enumerate(begins) if path.startswith(begin)), len(begins))

    items.sort(key=rank)
    if getattr(config, "workerinput", {}).get("workerid") == "gw0":
        _alone_file(config).parent.mkdir(exist_ok=True)
        alone = [item.nodeid for item in items if rank(item) < 0]
        _alone_file(config).write_text("\n".join(alone), "utf-8")
