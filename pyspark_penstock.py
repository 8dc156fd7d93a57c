# SPDX-License-Identifier: Apache-2.0
"""What Spark finds by itself: it imports every top-level module named ``pyspark_*`` and registers
its ``DefaultSource``, so ``spark.readStream.format("penstock")`` works without a further word."""

from penstock.spark_bridge import DefaultSource

__all__ = ["DefaultSource"]
