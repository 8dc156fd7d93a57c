# SPDX-License-Identifier: Apache-2.0
"""Register the source with Spark, and return settings that make Spark faster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def register(spark: SparkSession) -> None:
    """Register ``format("penstock")`` with a Spark session. If Spark has already found the data
    source in the installed wheel, :func:`register` does nothing, because Spark would warn of a
    second registration."""
    from penstock.spark_bridge import DefaultSource

    if not _is_found(spark, DefaultSource.name()):
        spark.dataSource.register(DefaultSource)


def _is_found(spark: SparkSession, name: str) -> bool:
    """Return whether Spark knows the data source; False if the session has no JVM of its own."""
    session: Any = getattr(spark, "_jsparkSession", None)
    if session is None:
        return False
    return bool(session.sessionState().dataSourceManager().dataSourceExists(name))


def tuned_settings(*, local_checkpoints: bool = True) -> dict[str, str]:
    """Spark settings under which a micro-batch took about half as long (``docs/spark.md``)::

        spark = SparkSession.builder.config(map=tuned_settings()).getOrCreate()

    - Use UNIX sockets between Spark and its Python workers: over TCP, each round of tasks waits
    about 40 ms for a delayed acknowledgement.
    - Write no checksum files for the files of the checkpoint, and use larger buffers between Spark
    and its Python workers.
    - Allow ten minutes instead of 15 s for the handshake of a Python worker that has connected to
      Spark. The worker must still connect within 10 s; Spark 4 has no setting for this limit
      (PythonWorkerFactory).
    - ``local_checkpoints``: write checkpoint files as plain files, and rename them. This takes half
      as long as Spark's default. Use ``local_checkpoints`` with a local or a POSIX file system, not
      with object stores.
    """
    settings = {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.buffer.size": "1048576",
        "spark.python.authenticate.socketTimeout": "600s",
    }
    if local_checkpoints:
        settings["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_CHECKPOINTS
    return settings
