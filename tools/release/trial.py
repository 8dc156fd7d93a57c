# SPDX-License-Identifier: Apache-2.0
"""Run an installed penstock: a daemon, a subscriber and a publisher, each a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from pathlib import Path

MESSAGES = "one\ntwo\nthree\n"
ROOT = Path(__file__).resolve().parents[2]
#: Tests of the client that need neither a daemon nor pyarrow.
CLIENT_TESTS = (
    "test_client_async.py", "test_client_fast.py", "test_client_ipc.py", "test_client_iteration.py",
    "test_client_life.py", "test_client_port.py", "test_client_pure.py", "test_request_rule.py",
    "test_thread_storage.py",
)
#: Tests of these files that no emulator of one program can run.
NOT_EMULATED: tuple[str, ...] = ()
#: Longer than an emulated start on a busy machine takes.
LIMIT_S = 300


def free_port() -> int:
    """Return a UDP port that nobody uses now."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def clean_environment(**more: str) -> dict[str, str]:
    """Return an environment in which Python finds only what was installed."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return kept | {"PYTHONSAFEPATH": "1"} | more


def imported_file(python: list[str], env: dict[str, str]) -> str:
    """Import every extension; return the file of the package and the machine it runs on."""
    text = ("import platform, penstock, penstock._core, penstock._core_bench, penstock._core_sim, "
            "penstock._fast; print(penstock.__file__, platform.machine(), "
            "platform.python_version())")
    return _run([*python, "-c", text], env)


def hello(python: list[str], env: dict[str, str]) -> None:
    """Send three messages through a daemon; ``python`` is the command that starts Python."""
    channel = f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory() as folder:
        there = ["--dir", f"{folder}/daemon"]
        wait = ["--connect-timeout", str(LIMIT_S)]
        penstock = [*python, "-m", "penstock"]
        daemon = subprocess.Popen([*penstock, "daemon", *there], env=env, cwd=folder)
        try:
            subscriber = subprocess.Popen(
                [*penstock, "sub", *there, *wait, channel, "1001", "--count", "3"],
                env=env, cwd=folder, stdout=subprocess.PIPE, text=True,
            )
            try:
                _run([*penstock, "pub", *there, *wait, channel, "1001"], env, MESSAGES, folder)
                received, _ = subscriber.communicate(timeout=LIMIT_S)
            finally:
                subscriber.kill()
                subscriber.wait()
        finally:
            daemon.terminate()
            status = daemon.wait(LIMIT_S)
    if received != MESSAGES or status != 0:
        raise SystemExit(f"hello world: received {received!r}; the daemon ended with {status}")


def commands(python: list[str], env: dict[str, str]) -> None:
    """Install the service into a folder and write a completion script."""
    with tempfile.TemporaryDirectory() as folder:
        _run([*python, "-m", "penstock", "service", "install", "--root", folder], env)
        if not (Path(folder) / "etc/systemd/system/penstock.service").exists():
            raise SystemExit("penstock service install wrote no unit")
    if "penstock" not in _run([*python, "-m", "penstock", "completion", "bash"], env):
        raise SystemExit("penstock completion bash printed no script")


def client_tests(python: list[str], env: dict[str, str], place: Path) -> str:
    """Run the tests of the client from the source tree with the installed wheel; return the last
    line of pytest. A program of another machine cannot start itself, so tests start a script that
    calls the emulator."""
    folder = place / "client-tests"
    folder.mkdir(exist_ok=True)
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexec {" ".join(python)} "$@"\n', "utf-8")
    script.chmod(0o755)
    (folder / "emulated_python.py").write_text(
        f"import sys\n\nsys.executable = {str(script)!r}\n", "utf-8"
    )
    here = env | {"PYTHONPATH": f"{env['PYTHONPATH']}:{folder}", "PYTHONDONTWRITEBYTECODE": "1"}
    shown = _run(
        [*python, "-m", "pytest", "--quiet", "-p", "emulated_python", "-p", "no:cacheprovider",
         "--rootdir", str(ROOT / "tests"), "-c", str(ROOT / "pyproject.toml"),
         *(str(ROOT / "tests/unit/client" / name) for name in CLIENT_TESTS),
         *(f"--deselect={name}" for name in NOT_EMULATED)],
        here, limit_s=3600,
    )
    return f"tests of the client: {shown.splitlines()[-1]}"


def _run(
    command: list[str], env: dict[str, str], stdin: str = "", cwd: str | None = None,
    limit_s: float = LIMIT_S,
) -> str:
    """Run a command outside the source tree and return what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command, env=env, cwd=cwd or folder, input=stdin, text=True, timeout=limit_s,
            stdout=subprocess.PIPE, check=False,
        )
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}\n{' '.join(command)} ended with {done.returncode}")
    return done.stdout.strip()
