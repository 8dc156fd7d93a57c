# SPDX-License-Identifier: Apache-2.0
"""Typed batches: NumPy records in, Polars and DuckDB out.

    pip install 'penstock[arrow]' polars duckdb
    penstock up
    python examples/tables.py
"""

from __future__ import annotations

import duckdb
import numpy as np

import penstock

TICK = np.dtype([("instrument", "<i4"), ("price", "<f8"), ("size", "<i4")])
CHANNEL, STREAM = "aeron:ipc", 50


def main() -> None:
    """Send 10 000 records, and ask two libraries about them."""
    with penstock.connect() as client:
        ticks = client.add_subscription(CHANNEL, STREAM, schema=TICK)
        publication = client.add_exclusive_publication(CHANNEL, STREAM, schema=TICK)
        records = np.zeros(10_000, TICK)
        records["instrument"] = np.arange(10_000) % 3
        records["size"] = 1
        publication.send_batch(records, timeout_s=5.0)
        publication.close()

        total = 0
        for batch in ticks.batches(timeout_s=30.0, until_end=True):
            total += batch.to_polars()["size"].sum()
            busiest = duckdb.sql("SELECT instrument FROM batch GROUP BY ALL ORDER BY count(*) DESC")
            assert busiest.fetchall()
        print("total size:", total)


if __name__ == "__main__":
    main()
