# SPDX-License-Identifier: Apache-2.0
"""Typed streams beside the raw path: CPU time of this process for a record, in nanoseconds.

    PENSTOCK_DIR=... python -m bench.typed [ROUNDS]

Needs a running daemon. Sends batches of 4096 records over IPC and receives them in the same
process: first bytes of the same length, then each kind of schema, with the batches as messages, as
values, and as an Arrow table.  Prints medians.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

import penstock

BATCH = 4096
CHANNEL = "aeron:ipc?term-length=64m"
ROUNDS = 50
DTYPE = np.dtype([("id", "<i8"), ("price", "<f8"), ("size", "<i8"), ("flag", "<i8")])


@dataclasses.dataclass
class Plain:
    """A record as a dataclass."""

    id: int
    price: float
    size: int
    flag: int


@attrs.frozen
class Attrs:
    """A record as an attrs class."""

    id: int
    price: float
    size: int
    flag: int


def kinds() -> dict[str, tuple[Any, Any]]:
    """Schema, and one batch, of each kind."""
    records = np.zeros(BATCH, DTYPE)
    records["id"], records["price"] = np.arange(BATCH), 0.5
    rows = [tuple(row) for row in records.tolist()]
    table = pa.table({name: records[name] for name in DTYPE.names or ()})
    return {
        "bytes": (None, records.view(np.uint8).reshape(BATCH, -1)),
        "NumPy dtype": (DTYPE, records),
        "Arrow schema": (table.schema, table),
        "dataclass": (Plain, [Plain(*row) for row in rows]),
        "attrs": (Attrs, [Attrs(*row) for row in rows]),
        "msgpack": ("msgpack", [dict(zip(DTYPE.names or (), row, strict=True)) for row in rows]),
    }


def cpu_ns(work: Callable[[], None], records: int) -> float:
    """CPU time of this process a record."""
    began = time.process_time_ns()
    work()
    return (time.process_time_ns() - began) / records


def measure(client: penstock.Client, schema: Any, batch: Any, rounds: int) -> list[float]:
    """Sending, receiving as messages, as values, and as a table: nanoseconds a record."""
    takes: list[tuple[str, Callable[[Any], object]]] = [
        ("messages", len),
        ("values", list),
        ("table", lambda got: got.to_arrow()),
    ]
    columns: list[list[float]] = [[], [], [], []]
    with (
        client.add_subscription(CHANNEL, 77, schema=schema) as subscription,
        client.add_exclusive_publication(CHANNEL, 77, schema=schema) as publication,
    ):
        publication.wait_connected(5.0)
        for _ in range(rounds):
            for number, (_name, take) in enumerate(takes, 1):
                columns[0].append(cpu_ns(lambda: publication.send_batch(batch, 5.0), BATCH))
                receive = partial(_receive, subscription, take)
                columns[number].append(cpu_ns(receive, BATCH))
    return [statistics.median(column) for column in columns]


def _receive(subscription: Any, take: Callable[[Any], object]) -> None:
    while subscription.wait(0):
        take(subscription.recv_batch(BATCH, 5.0))


def main() -> None:
    """Print a table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    print(f"{'schema':14} {'send':>8} {'messages':>9} {'values':>8} {'table':>8}   ns a record")
    with penstock.connect() as client:
        for name, (schema, batch) in kinds().items():
            row = measure(client, schema, batch, rounds)
            print(f"{name:14} " + " ".join(f"{value:8.0f}" for value in row))


if __name__ == "__main__":
    main()
