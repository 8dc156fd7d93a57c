# SPDX-License-Identifier: Apache-2.0
"""The first commands of a newcomer: clients that come before their daemon wait for it, and a daemon
in the background is started, found and ended."""

from __future__ import annotations

import os
import pty
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from support.hosts import PenstockHost, memory_directory
from support.speed import LIBRARY_S, library_cpu_s

import penstock
from penstock.cli._background import owner
from penstock.daemon.processes import process_started

PENSTOCK = [sys.executable, "-m", "penstock"]
TIMEOUT_S = 60.0
WAITING = b"penstock: waiting for a daemon in "


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where no daemon is; one that a test leaves there is ended."""
    path = memory_directory() / f"penstock-test-{os.getpid()}-{os.urandom(4).hex()}"
    host = PenstockHost(path)
    yield path
    host.stop()
    assert not path.exists()


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment with a state folder of its own."""
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture
def up(
    directory: Path, env: dict[str, str]
) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Runs ``penstock up`` on the directory; its daemon ends with the test."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return command(env, "up", f"--dir={directory}", *arguments)

    yield run
    command(env, "down", f"--dir={directory}")


def command(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PENSTOCK, *arguments], env=env, capture_output=True, text=True, timeout=TIMEOUT_S,
        check=False, stdin=subprocess.DEVNULL,
    )


def pid_of(shown: subprocess.CompletedProcess[str]) -> int:
    assert shown.returncode == 0, shown.stderr
    found = re.search(r"^  pid +(\d+)$", shown.stdout, re.MULTILINE)
    assert found is not None, shown.stdout
    return int(found[1])


def in_thread(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Runs ``call`` beside the test; the list gets its result, or its exception."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


# ---- waiting for a daemon ------------------------------------------------------------------------


def test_pub_and_sub_come_before_their_daemon(directory: Path) -> None:
    host = PenstockHost(directory)
    options = [f"--dir={directory}", "--connect-timeout=60"]
    both = [
        subprocess.Popen(
            [*PENSTOCK, name, "aeron:ipc", "5", *options, *more], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for name, more in (("sub", ["--count", "2"]), ("pub", ["--timeout", "60"]))
    ]
    for process in both:        # each has looked for a second, and found nothing
        assert process.stderr is not None
        assert process.stderr.readline().startswith(WAITING)
    host.start()
    try:
        both[1].communicate(b"one\ntwo\n", timeout=TIMEOUT_S)
        out, _ = both[0].communicate(timeout=TIMEOUT_S)
        assert [process.returncode for process in both] == [0, 0]
        assert out == b"one\ntwo\n"
    finally:
        host.stop()


def test_a_client_comes_before_its_daemon(directory: Path) -> None:
    host = PenstockHost(directory)
    thread, results = in_thread(lambda: penstock.connect(directory, timeout_s=60.0))
    host.start()
    thread.join()
    try:
        with results[0] as client:
            assert client.directory == directory
    finally:
        host.stop()


async def test_a_client_for_trio_comes_before_its_daemon(directory: Path) -> None:
    host = PenstockHost(directory)
    opened = trio.Event()

    async def client() -> None:
        async with penstock.open_client(directory, timeout_s=60.0):
            opened.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(client)
        await trio.testing.wait_all_tasks_blocked()
        await trio.to_thread.run_sync(host.start)
        await opened.wait()
    await trio.to_thread.run_sync(host.stop)


async def test_a_cancellation_ends_the_wait_for_a_daemon(directory: Path) -> None:
    with trio.move_on_after(0.1) as scope:
        async with penstock.open_client(directory, timeout_s=3600.0):
            raise AssertionError("there is no daemon")
    assert scope.cancelled_caught


def test_sockets_of_a_dead_daemon_are_waited_for(directory: Path) -> None:
    host = PenstockHost(directory)
    host.start()
    host.kill()
    assert (directory / "lease.sock").is_socket()
    thread, results = in_thread(lambda: penstock.connect(directory, timeout_s=60.0))
    host.start()
    thread.join()
    try:
        results[0].close()
    finally:
        host.stop()


def test_a_wait_for_a_daemon_ends(directory: Path) -> None:
    with pytest.raises(penstock.DaemonNotRunning, match=r"waited 0\.2 s.*penstock up --dir"):
        penstock.connect(directory, timeout_s=0.2)


def test_pub_says_that_it_waits_for_a_receiver(host: PenstockHost) -> None:
    shown = command(
        {**os.environ, "PENSTOCK_DIR": str(host.directory)},
        "pub", "aeron:ipc", "77", "--count", "1", "--timeout", "1.5",
    )
    waits, fails = shown.stderr.splitlines()
    assert waits == "penstock: waiting for a receiver of stream 77 on aeron:ipc, 1.5 s at most"
    assert fails.startswith("penstock: no receiver subscribed to stream 77")
    assert shown.returncode == 2


# ---- permission ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [["stat", "--once"], ["flows"], ["loss"], ["pub", "aeron:ipc", "1"], ["ping"], ["up"]],
    ids=lambda arguments: arguments[0],
)
def test_a_missing_permission_is_not_a_missing_daemon(
    host: PenstockHost, env: dict[str, str], arguments: list[str]
) -> None:
    # Root passes every mode, unless it gives the capability up.
    prefix = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    mode = host.directory.stat().st_mode
    host.directory.chmod(0)
    try:
        shown = subprocess.run(
            [*(prefix if os.geteuid() == 0 else []), *PENSTOCK, *arguments,
             f"--dir={host.directory}"],
            env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            stdin=subprocess.DEVNULL,
        )
    finally:
        host.directory.chmod(mode)
    assert shown.returncode == 2
    assert shown.stderr.startswith(f"penstock: this user may not reach {host.directory}")
    assert "mode 0000" in shown.stderr
    assert shown.stderr.count("\n") == 1


# ---- up and down ---------------------------------------------------------------------------------


def test_up_starts_one_daemon_and_down_ends_it(
    directory: Path, env: dict[str, str], up: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    shown = up()
    pid = pid_of(shown)
    assert process_started(pid)
    with penstock.connect(directory, timeout_s=60.0):
        pass
    said = shown.stdout
    assert f"  directory  {directory}\n" in said
    log = Path(re.findall(r"^  log +(.+)$", said, re.MULTILINE)[0])
    assert f"ready in {directory}" in log.read_text()
    again = up()
    assert pid_of(again) == pid
    assert "is already running" in again.stdout
    assert str(log) in again.stdout
    lines = said.split("try it:\n")[1].splitlines()
    assert len(lines) == 2
    ended = command(env, "down", f"--dir={directory}")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"(pid {pid}) has ended" in ended.stdout
    assert not process_started(pid)
    assert not directory.exists()
    once_more = command(env, "down", f"--dir={directory}")
    assert (once_more.returncode, once_more.stdout) == (0, f"no daemon is running in {directory}\n")


def test_the_lines_to_try_work(
    env: dict[str, str], up: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    lines = up().stdout.split("try it:\n")[1]
    env = {**env, "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", f"{lines}\nwait"], env=env, capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )
    assert (done.stdout, done.returncode) == ("one\ntwo\n", 0), done.stderr


def test_several_at_once_start_one_daemon(
    up: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    runs = [in_thread(up) for _ in range(4)]
    for thread, _ in runs:
        thread.join()
    assert len({pid_of(results[0]) for _, results in runs}) == 1


def test_a_daemon_that_is_still_starting_is_enough(
    directory: Path, up: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    host = PenstockHost(directory)
    daemon = host.run("-m", "penstock", "daemon", f"--dir={directory}")
    try:
        with daemon:
            while owner(directory) is None:     # it has not taken the directory yet
                assert daemon.process.poll() is None
                time.sleep(0.01)
            assert pid_of(up()) == daemon.process.pid
    finally:
        daemon.stop()


def test_down_leaves_other_daemons_alone(
    host: PenstockHost, env: dict[str, str]
) -> None:
    shown = command(env, "down", f"--dir={host.directory}")
    assert shown.returncode == 2
    assert f"(pid {host.pid}) was not started by this user's 'penstock up'" in shown.stderr
    started = command(env, "up", f"--dir={host.directory}")
    assert pid_of(started) == host.pid
    assert command(env, "down", f"--dir={host.directory}").returncode == 2
    with penstock.connect(host.directory):
        pass


def test_a_number_that_another_process_has_now_is_not_ended(
    directory: Path, env: dict[str, str], up: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    pid = pid_of(up())
    os.kill(pid, signal.SIGKILL)
    record = next(Path(env["XDG_STATE_HOME"]).rglob("*.json"))
    with subprocess.Popen(["sleep", "1000"]) as other:
        record.write_text(record.read_text().replace(str(pid), str(other.pid)))
        assert command(env, "down", f"--dir={directory}").returncode == 0
        assert other.poll() is None
        other.kill()
    assert pid_of(up()) != pid      # it takes what the killed one left


def test_up_says_why_its_daemon_does_not_start(
    tmp_path: Path, env: dict[str, str]
) -> None:
    (tmp_path / "somebody's").mkdir()
    (tmp_path / "somebody's" / "file").touch()
    shown = command(env, "up", f"--dir={tmp_path}/somebody's")
    assert shown.returncode == 2
    assert "holds files of another program (file)" in shown.stderr
    assert re.search(r"\(log: .*\.log\)$", shown.stderr.rstrip())
    assert shown.stderr.count("\n") == 1


def test_the_daemon_survives_the_shell(
    directory: Path, env: dict[str, str], up: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """The terminal hangs up; the daemon was started in it."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("bash", ["bash", "--norc", "-i"], env)
    os.write(terminal, f"{sys.executable} -m penstock up --dir={directory}\n".encode())
    seen = b""
    while b"penstock pub" not in seen:
        seen += os.read(terminal, 4096)
    os.close(terminal)
    os.waitpid(pid, 0)
    with penstock.connect(directory):
        pass
    assert "already running" in up().stdout


def test_a_cold_start_takes_little_of_a_processor(
    directory: Path, env: dict[str, str], up: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """User and system time of a daemon until `penstock up` returns, since it is ready: seconds of a
    machine at the speed that ``LIBRARY_S`` states, since the same work takes two or three times as
    long beside other programs."""
    taken = []
    tick = os.sysconf("SC_CLK_TCK")
    for _ in range(10):
        library_s = library_cpu_s()
        pid = pid_of(up())
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        taken.append(((int(fields[11]) + int(fields[12])) / tick, library_s))
        assert command(env, "down", f"--dir={directory}").returncode == 0
    assert statistics.median(cpu_s / library_s for cpu_s, library_s in taken) * LIBRARY_S <= 0.4, (
        taken
    )


#: Libraries that a daemon loads when something needs them, if ever.
LATER = (
    "asyncio", "hypercorn", "starlette", "prometheus_client", "psutil", "numpy", "pyarrow", "rich",
    "importlib.metadata", "penstock.client._client",
)
LOADED = """
import signal, sys
from penstock.daemon.server import Server

def announce(self):
    print(*(name for name in sys.argv[2:] if name in sys.modules), file=sys.stderr)
    signal.raise_signal(signal.SIGTERM)

Server._announce = announce
from penstock.cli import main
sys.exit(main(["daemon", "--dir", sys.argv[1]]))
"""


def test_a_daemon_that_is_ready_has_not_loaded_what_it_may_never_need(directory: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(directory), *LATER], capture_output=True, text=True,
        timeout=TIMEOUT_S, check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == ""
