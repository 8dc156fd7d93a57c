# SPDX-License-Identifier: Apache-2.0
"""A Kafka broker of one's own on loopback, and Spark's connector to it: the peer of the source."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.contenders import BUILD
from penstock._bench.processes import BenchError

BROKER: Final = BUILD / "kafka-broker"
CONNECTOR: Final = BUILD / "kafka-connector"
_CLUSTER_ID: Final = "cGVuc3RvY2stYmVuY2gtMQ"
_START_S: Final = 60.0
_PROPERTIES: Final = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={logs}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
num.partitions={partitions}
"""


def connector_jars() -> str:
    """Return the value of ``spark.jars``.

    :raises BenchError: the jars were not fetched.
    """
    jars = sorted(CONNECTOR.glob("*.jar"))
    if not jars:
        raise BenchError(f"no jars in {CONNECTOR}: run 'make bench-kafka'")
    return ",".join(map(str, jars))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _java(*argv: str, heap: str) -> list[str]:
    return [
        "java", f"-Xmx{heap}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        "-cp", f"{BROKER}/*", *argv,
    ]  # fmt: skip


@contextlib.contextmanager
def broker(
    *, partitions: int = 1, heap: str = "512m", directory: str | None = None
) -> Iterator[str]:
    """Run a broker for the duration of the block, with its logs in memory. Yields ``host:port``.

    :param partitions: of a topic that is written to for the first time.
    :raises BenchError: the broker does not start; the text has the end of its log.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="penstock-kafka-", dir=directory or "/dev/shm"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        port, controller = _free_port(), _free_port()
        properties = folder / "server.properties"
        properties.write_text(
            _PROPERTIES.format(
                port=port, controller=controller, logs=folder / "logs", partitions=partitions
            )
        )
        log = stack.enter_context((folder / "log").open("w+"))
        subprocess.run(
            _java("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties),
                  heap="256m"),
            check=True, stdout=log, stderr=log,
        )  # fmt: skip
        process = subprocess.Popen(
            _java("kafka.Kafka", str(properties), heap=heap), stdout=log, stderr=log
        )
        stack.callback(_stop, process)
        deadline = time.monotonic() + _START_S
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                log.seek(0)
                raise BenchError(f"the Kafka broker does not start:\n{log.read()[-2000:]}")
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
