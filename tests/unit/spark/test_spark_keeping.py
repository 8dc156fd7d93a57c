# SPDX-License-Identifier: Apache-2.0
"""After the first task of the bridge, collections of a Spark worker leave out its modules."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
import pyspark.sql.pandas.types
from penstock.spark_bridge import _reader
from penstock.spark_bridge._keeping import keep_modules

class Node:
    pass

def cycle():
    node = Node()
    node.itself = node

before = len(gc.get_objects())
cycle()                     # garbage of the first task
keep_modules()
frozen = gc.get_freeze_count()
assert not any(isinstance(node, Node) for node in gc.get_objects())
print(before, frozen, len(gc.get_objects()))
kept = Node()               # an object of a later task
keep_modules()
assert gc.get_freeze_count() <= frozen
assert kept in [node for node in gc.get_objects() if isinstance(node, Node)]
cycle()
assert gc.collect() > 0     # garbage of later tasks is still collected
"""


def test_collections_leave_out_the_modules_but_no_object_of_a_later_task() -> None:
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    before, frozen, left = map(int, found.stdout.split())
    assert frozen > 0.9 * before
    assert left < 0.01 * before
