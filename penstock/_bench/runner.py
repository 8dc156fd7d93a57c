# SPDX-License-Identifier: Apache-2.0
"""Start, measure and remove the daemons and clients of penstock."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from penstock._bench import measure
from penstock._bench.network import Network, Side, free_port, network
from penstock._bench.processes import Process

WORKS: Final = ("udp", "ipc", "rtt", "idle", "streams")
_WORKER: Final = "penstock._bench.worker"
_MEMORY: Final = Path("/dev/shm")
_STREAMS_TERM: Final = 64 * 1024
_COUNTERS: Final = 12                   # of a stream, at most


@attrs.frozen(kw_only=True)
class Settings:
    """One measurement.  Lengths in bytes."""

    client: str = "native"
    size: int = 32
    seconds: float = 3.0
    warmup_s: float = 1.0
    threading: str = "SHARED"
    idle: str = "park"
    window: int = 1 << 20
    """Of receivers."""
    publisher_window: int = 0
    """0: that of the channel's term length."""
    term_length: int = 16 << 20
    mtu: int = 1408
    so_buffers: int = 2 << 20
    spin_us: float = 0.0
    """How long a pinging or ponging client looks before it sleeps."""
    streams: int = 100
    """Connected streams, for ``idle``."""
    open: int = 1000
    """Open streams, for ``streams``."""
    busy: int = 10
    rate: float = 200_000.0
    """Messages a second over all busy streams, for ``streams``."""
    credits: int = 0
    """Messages that each subscription grants; 0: no credits."""
    shared: bool = False
    """Whether the publication is shared."""
    veth: bool = False


def run(work: str, settings: Settings) -> dict[str, Any]:
    """Run one measurement of ``work``, and remove its files afterwards."""
    with network(veth=settings.veth and work != "ipc") as where:
        result = _MEASUREMENTS[work](settings, where)
    facts = attrs.asdict(settings)
    if work == "streams":
        del facts["streams"]
    return {"work": work, "network": where.name, **result, "settings": facts}


# ---- daemons -------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Hosts:
    """The running daemons of a measurement: two daemons, or for IPC one daemon that serves both
    clients."""

    daemons: tuple[Process, ...]
    directories: tuple[Path, ...]

    @property
    def near(self) -> Path:
        return self.directories[0]

    @property
    def far(self) -> Path:
        return self.directories[-1]


#: Keys of the daemons' configuration, by table.
Tables = Mapping[str, Mapping[str, Any]]


@contextlib.contextmanager
def hosts(
    settings: Settings, where: Network, *, count: int = 2, tables: Tables | None = None
) -> Iterator[Hosts]:
    """Start the daemons. At the end of the ``with`` block, stop the daemons and remove their
    directories. The function computes the daemons' configuration from ``settings``. A key in
    ``tables`` replaces the computed key of the same name.
    """
    base = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=_MEMORY))
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, base, ignore_errors=True)
            config = base / "penstock.toml"
            config.write_text(_configuration(settings, tables or {}), encoding="utf-8")
            sides = (where.a, where.b)[:count]
            directories = tuple(base / name for name in "ab"[:count])
            daemons = tuple(
                stack.enter_context(_daemon(config, directory, side))
                for directory, side in zip(directories, sides, strict=True)
            )
            for daemon in daemons:
                daemon.expect("text", 30.0)  # it prints its address
            yield Hosts(daemons=daemons, directories=directories)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _daemon(config: Path, directory: Path, side: Side) -> Process:
    arguments = ["daemon", "--config", str(config), "--dir", str(directory)]
    return Process([sys.executable, "-m", "penstock", *arguments], prefix=side.prefix)


def _configuration(settings: Settings, more: Tables) -> str:
    room = (settings.open // 64 + 2) * 64
    tables: dict[str, dict[str, Any]] = {
        "agents": {"threading": settings.threading.lower(), "idle": settings.idle},
        "publications": {
            "term_length_bytes": settings.term_length,
            "ipc_term_length_bytes": settings.term_length,
            "mtu_bytes": settings.mtu,
        },
        "subscriptions": {"receiver_window_bytes": settings.window},
        "sockets": {"sndbuf_bytes": settings.so_buffers, "rcvbuf_bytes": settings.so_buffers},
        "metrics": {"listen": ""},
        "log": {"level": "warning"},
        "limits": {
            "publications": max(4096, room), "images": max(4096, room),
            "subscribers": max(8192, room),
        },
        "storage": {"counter_values_bytes": max(8 << 20, room * _COUNTERS * 128)},
    }
    for name, keys in more.items():
        tables.setdefault(name, {}).update(keys)
    lines = []
    for name, keys in tables.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def worker(role: str, side: Side, task: Mapping[str, Any]) -> Process:
    """A measured penstock client."""
    argv = [sys.executable, "-m", _WORKER, role, json.dumps(dict(task))]
    return Process(argv, prefix=side.prefix)


# ---- measurements --------------------------------------------------------------------------------


def _udp(settings: Settings, where: Network) -> dict[str, Any]:
    with hosts(settings, where) as pair:
        channel = f"aeron:udp?endpoint={where.b.address}:{free_port()}"
        return _throughput(settings, where, pair, channel + _limits(settings, "|"))


def _ipc(settings: Settings, where: Network) -> dict[str, Any]:
    with hosts(settings, where, count=1) as one:
        return _throughput(settings, where, one, "aeron:ipc" + _limits(settings, "?"))


def _limits(settings: Settings, mark: str) -> str:
    window = settings.publisher_window
    return f"{mark}pub-wnd={window}" if window else ""


def _throughput(
    settings: Settings, where: Network, pair: Hosts, channel: str
) -> dict[str, Any]:
    task = {
        "channel": channel, "client": settings.client, "size": settings.size,
        "warmup_s": settings.warmup_s, "seconds": settings.seconds,
        "credits": settings.credits, "shared": settings.shared,
    }
    with (
        worker("sub", where.b, {**task, "dir": str(pair.far)}) as subscriber,
        worker("pub", where.a, {**task, "dir": str(pair.near)}) as publisher,
    ):
        return measure.throughput(
            publisher, subscriber, pair.daemons, size=settings.size, seconds=settings.seconds,
            warmup_s=settings.warmup_s,
        )


def _rtt(settings: Settings, where: Network) -> dict[str, Any]:
    with hosts(settings, where) as pair:
        task = {
            "channel": f"aeron:udp?endpoint={where.b.address}:{free_port()}",
            "back": f"aeron:udp?endpoint={where.a.address}:{free_port()}",
            "client": settings.client, "size": settings.size,
            "spin_ns": int(settings.spin_us * 1000), "credits": settings.credits,
            "warmup_s": settings.warmup_s, "seconds": settings.seconds,
        }
        with (
            worker("pong", where.b, {**task, "dir": str(pair.far)}) as ponger,
            worker("ping", where.a, {**task, "dir": str(pair.near)}) as pinger,
        ):
            return measure.round_trips(
                pinger, ponger, pair.daemons, seconds=settings.seconds,
                warmup_s=settings.warmup_s,
            )


def _idle(settings: Settings, where: Network) -> dict[str, Any]:
    with hosts(settings, where) as pair, _many(settings, where, pair, busy=0) as clients:
        clients[1].expect("connected", measure.READY_S)
        clients[0].expect("ready", measure.READY_S)
        return {
            "streams": settings.streams,
            **measure.idle(pair.daemons, seconds=settings.seconds, settle_s=2 * settings.warmup_s),
        }


@contextlib.contextmanager
def _many(
    settings: Settings, where: Network, pair: Hosts, *, busy: int
) -> Iterator[tuple[Process, Process]]:
    task = {
        "channel": f"aeron:udp?endpoint={where.b.address}:{free_port()}"
        f"|term-length={_STREAMS_TERM if busy or settings.streams > 100 else settings.term_length}",
        "streams": settings.streams, "busy": busy, "rate": settings.rate, "size": settings.size,
        "warmup_s": settings.warmup_s, "seconds": settings.seconds,
    }
    with (
        worker("many-sub", where.b, {**task, "dir": str(pair.far)}) as subscriber,
        worker("many-pub", where.a, {**task, "dir": str(pair.near)}) as publisher,
    ):
        yield publisher, subscriber


def _streams(settings: Settings, where: Network) -> dict[str, Any]:
    """Measure with only the busy streams, then with all open streams."""
    few, many = (
        _streams_once(attrs.evolve(settings, streams=count), where)
        for count in (settings.busy, settings.open)
    )
    return {
        "few": few,
        "many": many,
        "cpu_ratio": many["cpu_ns_per_msg"] / few["cpu_ns_per_msg"],
        "cpu_ns_per_msg": many["cpu_ns_per_msg"],
        "msgs_per_s": many["msgs_per_s"],
        "hash_ok": few["hash_ok"] and many["hash_ok"],
    }


def _streams_once(settings: Settings, where: Network) -> dict[str, Any]:
    with (
        hosts(settings, where) as pair,
        _many(settings, where, pair, busy=settings.busy) as (publisher, subscriber),
    ):
        return {
            "open": settings.streams,
            "busy": settings.busy,
            **measure.many_streams(
                publisher, subscriber, pair.daemons, size=settings.size,
                seconds=settings.seconds, warmup_s=settings.warmup_s,
                ready_s=measure.READY_S + settings.streams / 50,
                directories=pair.directories,
            ),
        }


_MEASUREMENTS: Final = {
    "udp": _udp, "ipc": _ipc, "rtt": _rtt, "idle": _idle, "streams": _streams,
}
