# SPDX-License-Identifier: Apache-2.0
"""The real Aeron: built once by Maven, run as processes."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from support.processes import Peer

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build" / "interop" / "java"
BUILD_TIMEOUT_S = 300

_LOSS_SUPPLIERS = {
    "aeron.SendChannelEndpoint.supplier": "io.aeron.driver.ext.DebugSendChannelEndpointSupplier",
    "aeron.ReceiveChannelEndpoint.supplier": (
        "io.aeron.driver.ext.DebugReceiveChannelEndpointSupplier"
    ),
}


class NotBuiltError(RuntimeError):
    """Java or Maven is missing, or Maven's repository is not reachable."""


def build() -> None:
    """Compiles the Java programs and fetches the jars, unless that was done; offline when Maven has
    the jars already."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test runs may share the tree
        if not _is_built():
            _run_maven()


def _is_built() -> bool:
    sources = [HERE / "java" / "pom.xml", *(HERE / "java" / "src").rglob("*.java")]
    product = BUILD / "interop.jar"
    if shutil.which("java") is None or not any((BUILD / "lib").glob("aeron-all-*.jar")):
        return False
    newest = max(source.stat().st_mtime for source in sources)
    return product.exists() and product.stat().st_mtime > newest


def _run_maven() -> None:
    maven = ["mvn", "-q", "-B", "-f", str(HERE / "java" / "pom.xml")]
    arguments = [f"-Dinterop.build={BUILD}", "-Dmaven.test.skip=true", "package"]
    problem = ""
    for options in (["-o"], []):
        try:
            done = subprocess.run(
                [*maven, *options, *arguments],
                capture_output=True,
                text=True,
                timeout=BUILD_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotBuiltError(str(error)) from error
        if done.returncode == 0:
            return
        problem = "\n".join((done.stdout + done.stderr).splitlines()[:5])
    raise NotBuiltError(f"mvn package failed: {problem}")


def java(main: str, *args: str, properties: Mapping[str, str] | None = None) -> list[str]:
    """The command line of a Java program with Aeron on its class path."""
    jars = [BUILD / "interop.jar", *sorted((BUILD / "lib").glob("*.jar"))]
    return [
        "java",
        "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
        "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xmx256m",
        *(f"-D{name}={value}" for name, value in (properties or {}).items()),
        "-cp",
        ":".join(map(str, jars)),
        main,
        *args,
    ]


def loss(rate: float, *, seed: int) -> dict[str, str]:
    """Driver properties that lose a share of what the driver sends and of what it receives."""
    rates = {}
    for number, way in enumerate(
        ("send.data", "send.control", "receive.data", "receive.control"), start=seed
    ):
        rates[f"aeron.debug.{way}.loss.rate"] = str(rate)
        rates[f"aeron.debug.{way}.loss.seed"] = str(number)
    return {**_LOSS_SUPPLIERS, **rates}


class AeronHost:
    """Aeron's media driver, and the programs of ``java/`` as its clients."""

    def __init__(self, directory: Path, *, prefix: Sequence[str] = ()) -> None:
        self.directory = directory
        self._prefix = tuple(prefix)

    def pub(self, *args: str) -> Peer:
        return self._run("Pub", *args)

    def sub(self, *args: str) -> Peer:
        return self._run("Sub", *args)

    def asker(self, *args: str) -> Peer:
        """A requester by the rule of ``docs/request-reply.md``."""
        return self._run("Asker", *args)

    def answerer(self, *args: str) -> Peer:
        """A server by the rule of ``docs/request-reply.md``."""
        return self._run("Answerer", *args)

    def reader(self, *args: str) -> Peer:
        return self._run("Reader", *args)

    def _run(self, program: str, *args: str) -> Peer:
        command = java(f"dev.penstock.interop.{program}", f"--dir={self.directory}", *args)
        return Peer(command, prefix=self._prefix)


@contextlib.contextmanager
def aeron_host(
    directory: Path, properties: Mapping[str, str] | None = None, *, prefix: Sequence[str] = ()
) -> Iterator[AeronHost]:
    """A media driver for the length of the block; ``prefix`` goes before each command."""
    settings = {
        "aeron.dir": str(directory),
        "aeron.threading.mode": "SHARED",
        "aeron.shared.idle.strategy": "org.agrona.concurrent.SleepingMillisIdleStrategy",
        "aeron.term.buffer.length": "65536",
        "aeron.print.configuration": "false",
        **(properties or {}),
    }
    command = java("dev.penstock.interop.Driver", properties=settings)
    with Peer(command, prefix=prefix) as driver:
        driver.wait("ready")
        try:
            yield AeronHost(directory, prefix=prefix)
        except BaseException:
            sys.stderr.write(f"--- Aeron driver in {directory}\n{driver.errors()}\n")
            raise
        driver.finish()


def aeron_stat(directory: Path) -> str:
    """What AeronStat prints of a driver directory, once."""
    done = subprocess.run(
        java(
            "io.aeron.samples.AeronStat",
            "watch=false",
            properties={"aeron.dir": str(directory)},
        ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"AeronStat ended with {done.returncode}:\n{done.stderr}")
    return done.stdout
