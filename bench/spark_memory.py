# SPDX-License-Identifier: Apache-2.0
"""What a Python data source can give at best: the very batches of the penstock source, out of the
worker's memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from penstock.spark_bridge._source import DefaultSource, Partition

#: Of this worker process, by partition: filled when one is read for the first time.
_KEPT: dict[tuple[Any, ...], list[Any]] = {}


class MemorySource(DataSource):
    """Plans as the penstock source does; options and schema are the same."""

    @classmethod
    def name(cls) -> str:
        return "penstock-memory"

    def schema(self) -> str:
        return DefaultSource(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return MemoryReader(DefaultSource(self.options).reader(schema))


class MemoryReader(DataSourceReader):
    def __init__(self, reader: DataSourceReader) -> None:
        self._reader = reader

    def partitions(self) -> Sequence[InputPartition]:
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Partition)
        parts = [partition.table[index] for index in partition.own]
        key = tuple((part.session, part.start, part.end) for part in parts)
        if key not in _KEPT:
            _KEPT[key] = list(self._reader.read(partition))
        return iter(_KEPT[key])
