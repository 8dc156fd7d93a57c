# SPDX-License-Identifier: Apache-2.0
"""A standalone Spark cluster: a master, two workers, and a daemon of ours beside each, every one on
a host of its own.

Host 0 has the master, the drivers and whoever publishes; hosts 1 and 2 have a worker each.  All of
it is started from the PySpark package, with small heaps, and ends with the session.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pyspark
import zmq.auth
from support.hosts import TESTS, PenstockHost, penstock_host
from support.java import QUICK, archive_options
from support.patience import Patience
from support.processes import Peer, PeerError

from cluster.network import Network

WORKERS = (1, 2)
PORT = 7077
CONTROL_PORT = 9500
CORES = 4               # of each worker: two applications at a time, with two each
EXECUTOR_CORES = 2
START_S = 180.0          # on a busy machine
PATIENCE_S = 180.0
SPARK_HOME = Path(pyspark.__file__).parent
JVM = f"{QUICK} -Xss4m"
LOG4J = """
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_OUT
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{3}
logger.master.name = org.apache.spark.deploy
logger.master.level = info
"""


class SparkCluster:
    """Master and workers; drivers are made with :meth:`driver`."""

    def __init__(
        self, lan: Network, folder: Path, hosts: Sequence[PenstockHost], keys: Keys
    ) -> None:
        self.lan = lan
        self.keys = keys
        self.folder = folder
        self.hosts = tuple(hosts)
        self.master_url = f"spark://{lan.address(0)}:{PORT}"
        self._stack = contextlib.ExitStack()
        self._log4j = folder / "log4j2.properties"
        self._log4j.write_text(LOG4J)
        self._jvm = f"{JVM} {archive_options()} -Dlog4j2.configurationFile={self._log4j}"

    def start(self) -> None:
        """Returns when both workers are registered."""
        master = self._spark(
            0, "org.apache.spark.deploy.master.Master", "--host", self.lan.address(0),
            "--port", str(PORT), "--webui-port", "0",
        )
        self._await(master, "I have been elected leader")
        workers = [
            self._spark(
                number, "org.apache.spark.deploy.worker.Worker", "--host",
                self.lan.address(number), "--cores", str(CORES), "--memory", "2g",
                "--work-dir", str(self.folder / f"work-{number}"), "--webui-port", "0",
                self.master_url,
            )
            for number in WORKERS
        ]
        for worker in workers:
            self._await(worker, "Successfully registered with master")

    def stop(self) -> None:
        self._stack.close()

    def source(self, *hosts: int, **options: str) -> dict[str, str]:
        """Options of a source whose streams the daemons of ``hosts`` hold."""
        addresses = {f"tcp://{control_address(self.lan, n)}": self.keys.public[n] for n in hosts}
        return {
            "control": ",".join(addresses),
            "keyFile": str(self.keys.client),
            "serverKeys": json.dumps(addresses),
            **options,
        }

    def environment(self, host: int) -> dict[str, str]:
        """Of every Spark process on a host; executors inherit the worker's."""
        address = self.lan.address(host)
        return {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": address,
            "SPARK_PUBLIC_DNS": address,
            "SPARK_LOCAL_HOSTNAME": address,
            "SPARK_DAEMON_MEMORY": "192m",
            "SPARK_DAEMON_JAVA_OPTS": self._jvm,
            "SPARK_NO_DAEMONIZE": "1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PENSTOCK_DIR": str(self.hosts[host].directory),
            "PYTHONPATH": str(TESTS),
            "PYTHONWARNINGS": "ignore::FutureWarning",
        }

    @contextlib.contextmanager
    def driver(
        self, name: str, *, conf: Mapping[str, str] | None = None, executors: int = 2
    ) -> Iterator[Driver]:
        """A driver with a session of its own, once it has its executors."""
        address = self.lan.address(0)
        settings = {
            "spark.master": self.master_url,
            "spark.app.name": name,
            "spark.driver.host": address,
            "spark.driver.bindAddress": address,
            "spark.driver.memory": "600m",
            "spark.driver.extraJavaOptions": self._jvm,
            "spark.executor.memory": "512m",
            "spark.executor.cores": str(EXECUTOR_CORES),
            "spark.cores.max": str(EXECUTOR_CORES * executors),
            "spark.executor.extraJavaOptions": self._jvm,
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.streaming.minBatchesToRetain": "100000",
            "spark.local.dir": str(self.folder / "local"),
            **(conf or {}),
        }
        with Peer(
            [sys.executable, "-m", "cluster.spark_driver", json.dumps(settings), str(executors)],
            env=self.environment(0), prefix=named(self.lan, 0),
        ) as peer:
            made = Driver(peer)
            made.wait("ready", START_S)
            yield made

    def publisher(self, host: int, *args: str) -> Peer:
        """``cluster.spark_publisher`` on a host."""
        where = self.hosts[host]
        return where.run("-m", "cluster.spark_publisher", f"--dir={where.directory}", *args)

    def restart_daemon(self, host: int) -> None:
        """After a death."""
        address = control_address(self.lan, host)
        self.hosts[host].start("--config", str(self.keys.configuration(host, address)))

    def executors(self, application: str) -> dict[int, list[int]]:
        """Host to the processes of an application's executors there."""
        found: dict[int, list[int]] = {number: [] for number in WORKERS}
        for pid, words in processes():
            if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in words:
                if application not in words:
                    continue
                address = words[words.index("--hostname") + 1]
                for number in WORKERS:
                    if self.lan.address(number) == address:
                        found[number].append(pid)
        return found

    def python_workers(self, executor: int) -> list[int]:
        """Processes that run Python tasks of an executor: forked by its ``pyspark.daemon``."""
        daemons = children(executor)
        return [worker for daemon in daemons for worker in children(daemon)]

    def _spark(self, host: int, *argv: str) -> Peer:
        peer = Peer(
            [str(SPARK_HOME / "bin" / "spark-class"), *argv],
            env=self.environment(host), prefix=named(self.lan, host),
        )
        self._stack.callback(peer.stop)
        return peer

    def _await(self, peer: Peer, text: str) -> None:
        patience = Patience(START_S)
        while True:
            line = peer.next(patience.left_s)
            if text in str(line.get("text", "")):
                return


class Driver:
    """A driver process: it takes commands and reports by lines of JSON."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.application = ""
        self.log: list[str] = []

    def run(self, command: str, **arguments: Any) -> None:
        """Starts a function of ``cluster.spark_driver`` there."""
        self.peer.say(json.dumps({"run": command, **arguments}) + "\n")

    def request(
        self, command: str, *, timeout_s: float = PATIENCE_S, **arguments: Any
    ) -> dict[str, Any]:
        """Runs one and waits for its answer."""
        self.run(command, **arguments)
        return self.wait("answer", timeout_s)

    def wait(self, event: str, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """The next such event; a failure that comes before it is raised."""
        patience = Patience(timeout_s)
        while True:
            try:
                line = self.peer.next(patience.left_s)
            except PeerError as error:
                raise PeerError(f"{error}\n{''.join(self.log[-60:])}") from None
            if line["event"] == "text":
                self.log.append(str(line["text"]))
                continue
            if line["event"] == "failed" and event != "failed":
                raise PeerError(f"the driver failed: {line['text']}")
            if line["event"] == "ready":
                self.application = line["application"]
            if line["event"] == event:
                return line


class Drivers:
    """One driver after another; the first is started when it is requested."""

    def __init__(self, spark: SparkCluster) -> None:
        self._spark = spark
        self._stack = contextlib.ExitStack()
        self._current: Driver | None = None

    @property
    def current(self) -> Driver:
        if self._current is None:
            self._current = self._stack.enter_context(self._spark.driver("shared"))
        return self._current

    def kill(self) -> None:
        """SIGKILL to the driver and all that it started on its host; the next one is another."""
        os.killpg(self.current.peer.process.pid, signal.SIGKILL)
        self._stack.close()
        self._current = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()


def processes() -> Iterator[tuple[int, list[str]]]:
    """Every process of the machine with its command line."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            yield int(entry.name), words


def children(pid: int, program: str = "python") -> list[int]:
    """Processes whose parent is ``pid`` and that run a program."""
    found = []
    for other, words in processes():
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = Path(f"/proc/{other}/stat").read_text()
            parent = int(re.sub(r"^.*\)", "", stat).split()[1])
            if parent == pid and program in os.path.basename(words[0]):
                found.append(other)
    return sorted(found)


class Keys:
    """CURVE keys of the daemons, and of the one client that they let in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.allowed = folder / "allowed"
        self.allowed.mkdir(parents=True)
        self.public: dict[int, str] = {}
        for number in (0, *WORKERS):
            self.public[number] = self._make(f"daemon-{number}")
        self._make("spark")
        shutil.copy(folder / "spark.key", self.allowed)

    def _make(self, name: str) -> str:
        _public_file, secret_file = zmq.auth.create_certificates(str(self.folder), name)
        os.chmod(secret_file, 0o600)
        return zmq.auth.load_certificate(secret_file)[0].decode()

    @property
    def client(self) -> Path:
        return self.folder / "spark.key_secret"

    def configuration(self, number: int, address: str) -> Path:
        """Of a host's daemon."""
        path = self.folder / f"daemon-{number}.toml"
        path.write_text(
            f"""
            [control_tcp]
            listen = "{address}"
            secret_key = "{self.folder / f'daemon-{number}.key_secret'}"
            clients = "{self.allowed}"
            """
        )
        return path


@contextlib.contextmanager
def spark_cluster(lan: Network, folder: Path) -> Iterator[SparkCluster]:
    """A cluster for the length of the block; nothing of it stays, whatever happens."""
    keys = Keys(folder / "keys")
    with contextlib.ExitStack() as stack:
        hosts = []
        for number in (0, *WORKERS):
            configuration = keys.configuration(number, control_address(lan, number))
            hosts.append(stack.enter_context(
                penstock_host(
                    folder / f"daemon-{number}", "--config", str(configuration),
                    prefix=named(lan, number),
                )
            ))
        made = SparkCluster(lan, folder, hosts, keys)
        stack.callback(made.stop)
        made.start()
        yield made


def named(lan: Network, host: int) -> list[str]:
    """What goes before a command so that it runs on the host, and under the host's name."""
    script = f'hostname {name_of(host)}; exec "$@"'
    return [*lan.prefix(host), "unshare", "--uts", "sh", "-c", script, "sh"]


def name_of(host: int) -> str:
    return f"host-{host}"


def control_address(lan: Network, host: int) -> str:
    """Where a host's daemon serves other hosts."""
    return f"{lan.address(host)}:{CONTROL_PORT}"
