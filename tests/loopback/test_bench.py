# SPDX-License-Identifier: Apache-2.0
"""``penstock bench``: one JSON object, every message checked, nothing left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.not_run import module, need_root
from support.patience import Patience

from loopback.streams import eventually
from penstock._bench import measure, runner
from penstock._bench.processes import BenchError, Process
from penstock._bench.worker_io import Collector, Source
from penstock.cli.stat import snapshot
from penstock.core.bench import expected_hash

LENGTHS = ["--seconds", "0.3", "--warmup", "0.1", "--term-length", "1m", "--window", "128k"]
COMMAND = [sys.executable, "-m", "penstock", "bench"]


def bench(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [*COMMAND, *arguments, *LENGTHS, "--json"],
        capture_output=True, text=True, check=False, timeout=120,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def children(pid: int) -> list[int]:
    """Processes that a process has started and that have not ended."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def directories(pids: list[int]) -> set[Path]:
    """What the daemons among them were told to use."""
    found = set()
    for pid in pids:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        if "--dir" in words:
            found.add(Path(words[words.index("--dir") + 1]))
    return found


@pytest.mark.parametrize("client", ["native", "python", "batch"])
@pytest.mark.parametrize("work", ["udp", "ipc"])
def test_throughput_counts_and_hashes(work: str, client: str) -> None:
    if client == "batch":
        module("numpy")
    result = bench(work, "--client", client, "--size", "40")
    assert result["hash_ok"] is True
    assert result["received"] == result["sent"] > 0
    assert result["msgs_per_s"] > 0
    assert result["cpu_ns_per_msg"] > 0
    assert len(result["daemon_cores"]) == (2 if work == "udp" else 1)
    assert result["peak_depth_bytes"] > 0
    assert (result["verdict"] == "consumer-bound") == (result["pressure_share"] >= 0.5)
    assert (result["pressure_events"] == 0) == (result["pressure_share"] == 0)


@pytest.mark.parametrize("work", ["udp", "ipc"])
def test_a_run_whose_subscriber_is_stopped_is_consumer_bound(
    monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """The subscriber is stopped from the start on, until the publisher was under pressure for four
    seconds, and then reads for one."""
    started: dict[str, Process] = {}
    directories: dict[str, Path] = {}
    start, say = runner.worker, Process.say

    def remember(role: str, side: Any, task: Any) -> Process:
        started[role] = start(role, side, task)
        directories[role] = Path(task["dir"])
        return started[role]

    def pressed_ns() -> int:
        (row,) = snapshot(directories["pub"])["status"]["publications"]
        return int(row["pressure_ns"])

    def stop(process: Process, text: str) -> None:
        say(process, text)
        if text == "go":
            subscriber = psutil.Process(started["sub"].pid)
            subscriber.suspend()
            eventually(lambda: pressed_ns() >= 4 * 10**9, "the publisher is under pressure")
            subscriber.resume()

    monkeypatch.setattr(runner, "worker", remember)
    monkeypatch.setattr(Process, "say", stop)
    result = runner.run(work, runner.Settings(
        seconds=0.9, warmup_s=0.1, term_length=1 << 20, window=128 << 10
    ))
    assert result["hash_ok"] is True
    assert result["pressure_share"] >= 0.7
    assert result["verdict"] == "consumer-bound"


@pytest.mark.parametrize("work", ["udp", "ipc"])
def test_a_run_whose_publisher_has_a_rate_is_source_bound(
    monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    """The messages of a second are a tenth of the log. So a machine that pauses for some seconds
    does not fill the log."""
    start = runner.worker

    def with_rate(role: str, side: Any, task: Any) -> Process:
        mark = "|" if "?" in task["channel"] else "?"
        rate = f"{mark}ps-rate=10000msg" if role == "pub" else ""
        return start(role, side, {**task, "channel": task["channel"] + rate})

    monkeypatch.setattr(runner, "worker", with_rate)
    result = runner.run(work, runner.Settings(seconds=0.9, warmup_s=0.1))
    assert result["hash_ok"] is True
    assert result["sent"] > 1000
    assert result["pressure_share"] <= 0.2
    assert result["verdict"] == "source-bound"


@pytest.mark.parametrize("shared", [False, True], ids=["exclusive", "shared"])
@pytest.mark.parametrize("work", ["udp", "ipc"])
def test_throughput_with_credits_is_held_by_them(work: str, shared: bool) -> None:
    """Eight messages of 64 bytes cannot fill the log, so the depth stays below that of a window."""
    result = bench(work, "--credits", "8", *(["--shared"] if shared else []))
    assert result["hash_ok"] is True
    assert result["received"] == result["sent"] > 0
    assert result["peak_depth_bytes"] <= 8 * 64


def test_a_round_trip_needs_one_credit_each_way() -> None:
    assert bench("rtt", "--credits", "1")["p50_us"] > 0


@pytest.mark.parametrize("client", ["native", "python"])
def test_round_trips_have_ordered_percentiles(client: str) -> None:
    result = bench("rtt", "--client", client)
    assert 0 < result["p50_us"] <= result["p99_us"] <= result["p999_us"]


def test_idle_daemons_use_something_but_not_a_core() -> None:
    result = bench("idle", "--streams", "5")
    assert all(0 < share < 0.5 for share in result["daemon_cores"])


def test_many_streams_report_memory_and_the_time_to_add_them() -> None:
    result = bench("streams", "--open", "40", "--busy", "2", "--rate", "2000")
    assert result["hash_ok"] is True
    many = result["many"]
    assert many["open"] == 40
    assert many["connect_s"] > 0
    for name in ("files_bytes", "resident_bytes", "private_bytes", "mappings"):
        assert len(many[name]) == 2
        assert all(value > 0 for value in many[name])
    assert all(map(int.__ge__, many["resident_bytes"], many["private_bytes"]))


def namespaces(pid: int) -> set[str]:
    """Those that a process has made; other tests make some at the same time."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
    names = {line.split()[0] for line in listed.stdout.splitlines() if line}
    return {name for name in names if name.startswith(f"penstock-{pid}-")}


@pytest.mark.needs_root
def test_a_bench_between_two_namespaces_leaves_none_behind() -> None:
    need_root("network namespaces")
    process = subprocess.Popen(
        [*COMMAND, "udp", "--veth", *LENGTHS, "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    made: set[str] = set()

    def has_made() -> bool:
        made.update(namespaces(process.pid))
        return len(made) == 2 or process.poll() is not None

    eventually(has_made, "the bench makes its namespaces")
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0, error
    assert len(made) == 2
    result = json.loads(out)
    assert result["hash_ok"] is True
    assert result["network"] == "veth"
    assert namespaces(process.pid) == set()


def test_nothing_is_left_when_it_is_ended() -> None:
    process = subprocess.Popen(
        [*COMMAND, "udp", "--seconds", "60", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    patience = Patience(60)
    while len(directories(mine := children(process.pid))) < 2 or len(mine) < 4:
        assert not patience.is_over, mine
        time.sleep(0.05)  # until the daemons and clients are there
    places = directories(mine)
    running = [psutil.Process(pid) for pid in mine if psutil.pid_exists(pid)]
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    # A process that was being started when the signal came may outlive its parent by a moment.
    _gone, alive = psutil.wait_procs(running, timeout=10)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]
    assert not [place for place in places if place.parent.exists()]


def test_a_changed_message_changes_the_verdict() -> None:
    source, collector = Source(32, 100), Collector(32)
    for message in source.messages():
        collector.append(message)
    collector.settle(at_least=1)
    totals = collector.load.totals()
    said = {"messages": 100, "hash": f"{totals.hash:016x}", "out_of_order": totals.out_of_order}
    assert totals.hash == expected_hash(100)
    assert measure._verdict(100, said)["hash_ok"] is True
    assert measure._verdict(101, said)["hash_ok"] is False
    assert measure._verdict(100, {**said, "hash": "0"})["hash_ok"] is False


def test_a_client_that_fails_says_why() -> None:
    code = "import sys; sys.exit('no such place')"
    with (
        Process([sys.executable, "-c", code]) as process,
        pytest.raises(BenchError, match="no such place"),
    ):
        process.expect("ready", 10.0)
