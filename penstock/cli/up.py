# SPDX-License-Identifier: Apache-2.0
"""``penstock up``: starts a daemon in the background."""

from __future__ import annotations

import os
import secrets
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import click

import penstock
from penstock.cli._background import Files, Record, answering, owner
from penstock.client._directory import daemon_directory
from penstock.core.errors import PenstockError, TimeoutExpired
from penstock.daemon.processes import process_started

_STEP_S: Final = 0.02
_READY: Final = b"READY=1"
_CHANNEL: Final = "aeron:udp?endpoint=127.0.0.1:40456"


@click.command("up", short_help="Start a daemon in the background.")
@click.option("--dir", "directory", metavar="DIR",
              help="Directory shared with clients.  Default: the configuration's, then "
              "$PENSTOCK_DIR, then /dev/shm/penstock-$USER.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), metavar="FILE",
              help="Configuration in TOML; see 'penstock config'.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), default=30.0,
              show_default=True, metavar="SECONDS", help="Wait so long until it is ready.")
def command(directory: str | None, config_file: Path | None, timeout_s: float) -> None:
    """Start a daemon in the background, and return when it is ready.

    If a daemon already serves the directory, only report this daemon. The daemon outlives the
    shell. The daemon writes its log to a file. 'penstock up' prints the name of this file. Use
    'penstock down' to end the daemon.
    """
    path = _directory(directory, config_file)
    files = Files.of(path)
    pid = answering(path)
    if pid is None:
        arguments = [] if config_file is None else [f"--config={config_file.absolute()}"]
        pid = _start(path, files, arguments, time.monotonic() + timeout_s)
        _describe(path, files, pid, "is ready")
    else:
        _describe(path, files, pid, "is already running")


def _directory(directory: str | None, config_file: Path | None) -> Path:
    if config_file is None:
        return daemon_directory(directory)
    from penstock.config.settings.load import load_file

    return daemon_directory(directory or load_file(config_file).directory.path or None)


def _start(directory: Path, files: Files, arguments: list[str], deadline: float) -> int:
    """Return the process id of a ready daemon: a new one, or one that was faster."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as ready:
        address = f"penstock-up-{secrets.token_hex(16)}"
        ready.bind(f"\0{address}")
        child, log_start = _spawn(directory, files, arguments, notify=f"@{address}")
        try:
            if _becomes_ready(child, ready, deadline):
                files.write(Record(child.pid, process_started(child.pid)))
                return child.pid
            if child.poll() is None:
                raise TimeoutExpired(
                    f"the daemon in {directory} was not ready in time and was ended; its log: "
                    f"{files.log}"
                )
        except BaseException:           # also on Ctrl-C: no daemon remains
            child.terminate()
            child.wait()
            raise
    while owner(directory) is not None and time.monotonic() < deadline:
        pid = answering(directory)      # another process has started a daemon meanwhile
        if pid is not None:
            return pid
        time.sleep(_STEP_S)
    raise PenstockError(f"{_last_words(files.log, log_start)} (log: {files.log})")


def _spawn(
    directory: Path, files: Files, arguments: list[str], *, notify: str
) -> tuple[subprocess.Popen[bytes], int]:
    """Start the daemon in its own session; return the process and the beginning of its part of the
    log."""
    environment = {**os.environ, "NOTIFY_SOCKET": notify}
    environment.pop("WATCHDOG_USEC", None)
    log = files.open_log()
    try:
        child = subprocess.Popen(
            # -P: as the installed command, it does not import from the working directory.
            [sys.executable, "-P", "-m", "penstock", "daemon", f"--dir={directory}", *arguments],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
            start_new_session=True,
        )
        return child, os.fstat(log).st_size
    finally:
        os.close(log)


def _becomes_ready(
    child: subprocess.Popen[bytes], ready: socket.socket, deadline: float
) -> bool:
    """Sleep until the daemon reports that it is ready; False if it ended or the time is over."""
    ended = os.pidfd_open(child.pid)
    try:
        while (left := deadline - time.monotonic()) > 0:
            readable, _, _ = select.select([ready.fileno(), ended], [], [], left)
            if ready.fileno() in readable and _READY in ready.recv(4096):
                return True
            if ended in readable:
                child.wait()
                return False
        return False
    finally:
        os.close(ended)


def _last_words(log: Path, start: int) -> str:
    """Return the last lines that the daemon wrote before it ended."""
    with log.open("rb") as file:
        file.seek(start)
        lines = file.read().decode("utf-8", "replace").split("\n")
    said = [line for line in lines if line.strip()]
    return said[-1].removeprefix("penstock: ") if said else "the daemon ended without a word"


def _describe(directory: Path, files: Files, pid: int, state: str) -> None:
    record = files.read()
    ours = record is not None and record.pid == pid and record.lives
    log = str(files.log) if ours else "with the shell or service that started it"
    option = "" if directory == daemon_directory() else f" --dir {directory}"
    click.echo(
        f"penstock {penstock.__version__} {state}\n"
        f"  directory  {directory}\n"
        f"  pid        {pid or 'in another PID namespace'}\n"
        f"  log        {log}\n"
        "try it:\n"
        f"  penstock sub{option} '{_CHANNEL}' 1001 --count 2 &\n"
        f"  printf 'one\\ntwo\\n' | penstock pub{option} '{_CHANNEL}' 1001"
    )
