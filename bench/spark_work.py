# SPDX-License-Identifier: Apache-2.0
"""The work that the Spark benchmarks give to each contender."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from pyspark.sql import DataFrame, SparkSession


@attrs.frozen(kw_only=True)
class Work:
    """What is read."""

    records: int
    size: int
    partitions: int


@attrs.frozen(kw_only=True)
class Contender:
    """A way to read the records."""

    name: str
    load: Callable[[SparkSession], DataFrame]
