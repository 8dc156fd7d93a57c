# SPDX-License-Identifier: Apache-2.0
"""``penstock down``: ends the daemon that ``penstock up`` started."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import click

from penstock.cli._background import Files, Record, answering
from penstock.cli._common import directory_option
from penstock.client._directory import daemon_directory
from penstock.core.errors import PenstockError, TimeoutExpired


@click.command("down", short_help="End the daemon that 'penstock up' started.")
@directory_option
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), default=30.0,
              show_default=True, metavar="SECONDS", help="Wait so long for its end.")
def command(directory: str | None, timeout_s: float) -> None:
    """End the daemon that 'penstock up' started, and wait until it has ended.

    If the daemon was not started by 'penstock up', it continues to run, and the exit status is 2.
    """
    path = daemon_directory(directory)
    files = Files.of(path)
    record = files.read()
    if record is not None and record.lives:
        _end(record, path, files, timeout_s)
        files.forget()
        click.echo(f"the daemon in {path} (pid {record.pid}) has ended")
        return
    files.forget()
    pid = answering(path)
    if pid is not None:
        raise PenstockError(
            f"the daemon in {path} (pid {pid}) was not started by this user's 'penstock up': end "
            "this daemon with the program that started it"
        )
    click.echo(f"no daemon is running in {path}")


def _end(record: Record, directory: Path, files: Files, timeout_s: float) -> None:
    """Send SIGTERM and wait for the end of the process.

    :raises TimeoutExpired: the process still runs.
    """
    try:
        process = os.pidfd_open(record.pid)
    except ProcessLookupError:
        return
    try:
        if not record.lives:        # another process has this id meanwhile
            return
        signal.pidfd_send_signal(process, signal.SIGTERM)
        if not select.select([process], [], [], timeout_s)[0]:
            raise TimeoutExpired(
                f"the daemon in {directory} (pid {record.pid}) has not ended within "
                f"{timeout_s:g} s; its log: {files.log}"
            )
    finally:
        os.close(process)
