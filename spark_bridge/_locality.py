# SPDX-License-Identifier: Apache-2.0
"""Read each range of a stream on a host whose daemon retains it.

In Spark, a Python source cannot state preferred hosts for its partitions. In a barrier stage,
however, each task knows the hosts of all tasks, so all tasks can compute the same assignment of
ranges to tasks. Each range is assigned to a task on a host whose daemon has the range. If a host
has several tasks, the task with the least data gets the next range. If no task runs on a host whose
daemon has the range, the range goes to the task with the least data. The Spark driver looks up the
names of the daemons' hosts and sends them to all tasks, so that all tasks compare the same names.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from penstock.spark_bridge._options import SourceOptions
from penstock.spark_bridge._planner import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def read_local(df: DataFrame) -> DataFrame:
    """Return a copy of ``df``. In this copy, each task reads, if possible, ranges that have logs on
    the task's own host. A task that reads only from its own host needs no network.

    ``df`` must come from ``format("penstock")`` with the options ``locality=barrier`` and
    ``minPartitions``. The value of ``minPartitions`` must not exceed the number of task slots of
    the cluster. A barrier stage starts only when all its tasks can run at the same time. If the
    cluster has too few task slots, the stage waits, and Spark reports nothing. If one task of a
    barrier stage fails, Spark repeats all its tasks. Barrier stages do not work with dynamic
    allocation.
    """
    return df.mapInArrow(_same, df.schema, barrier=True)


def _same(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches


def own_ranges(table: Sequence[Range], own: tuple[int, ...]) -> tuple[int, ...]:
    """Return the indices, in ``table``, of the ranges that the calling task reads. In a barrier
    stage, the hosts of all tasks determine the ranges of each task. In other stages, the task reads
    the ranges ``own``, which the planner has assigned.
    """
    from pyspark import BarrierTaskContext, TaskContext

    context = TaskContext.get()
    if not isinstance(context, BarrierTaskContext):
        return own
    hosts = [info.address.rpartition(":")[0] or info.address for info in context.getTaskInfos()]
    return assign(table, hosts)[context.partitionId()]


def assign(table: Sequence[Range], hosts: Sequence[str]) -> list[tuple[int, ...]]:
    """Assign ranges to tasks by host. A range can go to each task on a host whose daemon has the
    range; if there is no such task, it can go to any task. Of these tasks, the task with the least
    data gets the range."""
    loads = [0] * len(hosts)
    tasks: list[list[int]] = [[] for _ in hosts]
    for index in sorted(range(len(table)), key=lambda i: (-table[i].length, i)):
        names = {name for holder in table[index].holders for name in holder.names}
        near = [task for task, host in enumerate(hosts) if host in names]
        chosen = min(near or range(len(hosts)), key=lambda task: (loads[task], task))
        tasks[chosen].append(index)
        loads[chosen] += table[index].length
    return [tuple(sorted(task)) for task in tasks]


def with_names(options: SourceOptions, table: Sequence[Range]) -> list[Range]:
    """Return copies of the ranges. A copy lists each daemon that has the range, with the names of
    the daemon's host. A host's names are the name that its daemon states, the name in the option
    ``control``, and the addresses of both names.
    """
    known: dict[tuple[int, str], tuple[str, ...]] = {}
    for item in table:
        for holder in item.holders:
            key = (holder.daemon, holder.host)
            if key not in known:
                address = options.daemons[holder.daemon].address or ""
                known[key] = _names(
                    holder.host, address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
                )
    return [
        attrs.evolve(item, holders=tuple(
            attrs.evolve(holder, names=known[(holder.daemon, holder.host)])
            for holder in item.holders
        )) for item in table
    ]


def _names(*hosts: str) -> tuple[str, ...]:
    names = {host for host in hosts if host}
    for host in tuple(names):
        with contextlib.suppress(OSError):
            names |= {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    return tuple(sorted(names))
