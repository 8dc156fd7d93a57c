# SPDX-License-Identifier: Apache-2.0
"""Everyone who is measured: each function runs one measurement and returns its facts.

All speak the same protocol to the same harness, send the same messages and have the same windows,
terms, datagrams and socket buffers.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from penstock._bench import measure, runner
from penstock._bench.network import Network, Side, free_port, network
from penstock._bench.processes import Process
from penstock._bench.runner import Settings

ROOT: Final = Path(__file__).resolve().parent.parent
BUILD: Final = ROOT / "build" / "bench"
PEERS: Final = ROOT / "bench" / "peers"
#: Throughput: Aeron's default idle strategy in drivers and clients.
AERON_IDLE: Final = "backoff:10:20:1000:1000000"
#: Round trips: of the settings tried, the best p50 and p99 with an idle driver near 1 % of a core
#: (see README.md): a ping-pong stays among the yields, an idle driver soon parks for 16 ms.
AERON_RTT_IDLE: Final = "backoff:1:100:1000000:16000000"
AERON_RTT_CLIENT_IDLE: Final = "backoff:1:100:1000:1000000"
#: Compiling hot code to the end takes the JVM longer than others need to warm up.
JAVA_WARMUP_S: Final = 3.0


def penstock(work: str, settings: Settings) -> dict[str, Any]:
    """One ``penstock bench``."""
    return runner.run(work, settings)


# ---- Aeron ---------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class AeronIdle:
    """Idle strategies of driver threads and of clients."""

    driver: str = AERON_IDLE
    client: str = AERON_IDLE


def aeron(work: str, settings: Settings, idle: AeronIdle | None = None) -> dict[str, Any]:
    """The Java driver with Java clients: ``udp``, ``ipc``, ``rtt`` or ``idle``."""
    rtt = work in ("rtt", "idle")
    idle = idle or (
        AeronIdle(driver=AERON_RTT_IDLE, client=AERON_RTT_CLIENT_IDLE) if rtt else AeronIdle()
    )
    settings = attrs.evolve(settings, warmup_s=max(JAVA_WARMUP_S, settings.warmup_s))
    with (
        network(veth=settings.veth and work != "ipc") as where,
        _aeron_hosts(settings, where, idle, count=1 if work == "ipc" else 2) as pair,
    ):
        channel = f"aeron:udp?endpoint={where.b.address}:{free_port()}"
        if work == "ipc":
            channel = "aeron:ipc"
        back = f"aeron:udp?endpoint={where.a.address}:{free_port()}"
        options = [
            f"--channel={channel}", f"--back={back}", f"--size={settings.size}",
            f"--warmup-ns={int(settings.warmup_s * 1e9)}", f"--idle={idle.client}",
            f"--measure-ns={int(settings.seconds * 1e9)}", f"--streams={settings.streams}",
        ]
        roles = {"rtt": ("pong", "ping"), "idle": ("hold", "hold")}.get(work, ("sub", "pub"))
        with (
            _java("Load", [roles[0], f"--dir={pair[-1][1]}", "--side=sub", *options],
                  where.b) as far,
            _java("Load", [roles[1], f"--dir={pair[0][1]}", "--side=pub", *options],
                  where.a) as near,
        ):
            facts = _measure_aeron(work, settings, near, far, [one for one, _dir in pair])
    return {"work": work, "network": where.name, **facts, "aeron_idle": attrs.asdict(idle),
            "settings": attrs.asdict(settings)}


def _measure_aeron(
    work: str, settings: Settings, near: Process, far: Process, drivers: list[Process]
) -> dict[str, Any]:
    if work == "rtt":
        return measure.round_trips(
            near, far, drivers, seconds=settings.seconds, warmup_s=settings.warmup_s
        )
    if work == "idle":
        far.expect("connected", measure.READY_S)
        near.expect("connected", measure.READY_S)
        return measure.idle(drivers, seconds=settings.seconds, settle_s=2 * settings.warmup_s)
    return measure.throughput(
        near, far, drivers, size=settings.size, seconds=settings.seconds,
        warmup_s=settings.warmup_s,
    )


@contextlib.contextmanager
def _aeron_hosts(
    settings: Settings, where: Network, idle: AeronIdle, *, count: int
) -> Iterator[list[tuple[Process, Path]]]:
    base = Path(tempfile.mkdtemp(prefix="penstock-bench-aeron-", dir="/dev/shm"))
    try:
        with contextlib.ExitStack() as stack:
            hosts = []
            for name, side in list(zip("ab", (where.a, where.b), strict=True))[:count]:
                options = [
                    f"--dir={base / name}", f"--threading={settings.threading}",
                    f"--idle={idle.driver}", f"--mtu={settings.mtu}",
                    f"--term={settings.term_length}", f"--window={settings.window}",
                    f"--so-buffers={settings.so_buffers}",
                ]
                hosts.append((stack.enter_context(_java("Driver", options, side)), base / name))
            for driver, _directory in hosts:
                driver.expect("ready", measure.READY_S)
            yield hosts
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _java(main: str, arguments: list[str], side: Side) -> Process:
    jars = [BUILD / "aeron" / "bench.jar", *sorted((BUILD / "aeron" / "lib").glob("*.jar"))]
    return Process(
        [
            "java",
            "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
            "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            "-Xms256m",
            "-Xmx256m",
            "-Dagrona.disable.bounds.checks=true",
            "-cp",
            ":".join(map(str, jars)),
            f"dev.penstock.bench.{main}",
            *arguments,
        ],
        prefix=side.prefix,
    )


# ---- Python peers --------------------------------------------------------------------------------


def zeromq(work: str, settings: Settings) -> dict[str, Any]:
    """pyzmq over TCP: ``udp`` stands for the throughput work, or ``rtt``."""
    return _python_peer("zeromq.py", work, settings, "tcp://{}", {})


def zenoh(work: str, settings: Settings) -> dict[str, Any]:
    """eclipse-zenoh over TCP."""
    path = os.pathsep.join(filter(None, [str(BUILD / "site"), os.environ.get("PYTHONPATH", "")]))
    return _python_peer("zenoh_peer.py", work, settings, "tcp/{}", {"PYTHONPATH": path})


def _python_peer(
    script: str, work: str, settings: Settings, url: str, env: dict[str, str]
) -> dict[str, Any]:
    with network(veth=settings.veth) as where:
        task = json.dumps(
            {
                "endpoint": url.format(f"{where.b.address}:{free_port()}"),
                **attrs.asdict(settings),
            }
        )
        far_role, near_role = ("pong", "ping") if work == "rtt" else ("sub", "pub")
        path = str(PEERS / script)
        with (
            Process([sys.executable, path, far_role, task], prefix=where.b.prefix,
                    env=env) as far,
            Process([sys.executable, path, near_role, task], prefix=where.a.prefix,
                    env=env) as near,
        ):
            if work == "rtt":
                facts = measure.round_trips(
                    near, far, [], seconds=settings.seconds, warmup_s=settings.warmup_s
                )
            else:
                facts = measure.throughput(
                    near, far, [], size=settings.size, seconds=settings.seconds,
                    warmup_s=settings.warmup_s,
                )
    return {"work": work, "network": where.name, **facts, "settings": attrs.asdict(settings)}


# ---- bare sockets --------------------------------------------------------------------------------


def plain(mode: str, settings: Settings) -> dict[str, Any]:
    """Bare UDP sockets: ``mmsg`` (sendmmsg and recvmmsg) or ``gso`` (segmentation and GRO)."""
    with network(veth=settings.veth) as where:
        common = [
            where.b.address, str(free_port()), str(settings.size), str(settings.mtu),
            str(settings.so_buffers), str(settings.window), mode,
        ]
        spans = [str(int(settings.warmup_s * 1e9)), str(int(settings.seconds * 1e9))]
        program = str(BUILD / "plain")
        with (
            Process([program, "sub", *common, *spans], prefix=where.b.prefix) as far,
            Process([program, "pub", *common], prefix=where.a.prefix) as near,
        ):
            facts = measure.throughput(
                near, far, [], size=settings.size, seconds=settings.seconds,
                warmup_s=settings.warmup_s,
            )
    return {"work": "udp", "network": where.name, **facts, "settings": attrs.asdict(settings)}
