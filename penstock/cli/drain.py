# SPDX-License-Identifier: Apache-2.0
"""``penstock drain``: ends a daemon and all its streams, or stops the publishers of one stream."""

from __future__ import annotations

from pathlib import Path

import click

from penstock.cli._common import directory_option, json_option
from penstock.cli._credits import channel_option, drain
from penstock.client._directory import daemon_directory
from penstock.client._inspect import request_drain
from penstock.core.errors import DaemonNotRunning

_INCOMPLETE = 1


@click.command("drain")
@click.argument("stream_id", metavar="[STREAM]", type=int, required=False)
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0), default=10.0,
              show_default=True, metavar="SECONDS",
              help="Wait so long for receivers to get what was accepted.")
@click.option("--discard", is_flag=True,
              help="Remove also what was not sent by then, what consumer groups hold, and what a "
              "daemon that runs no more left.")
@channel_option
@json_option
@directory_option
@click.pass_context
def command(
    context: click.Context, stream_id: int | None, timeout_s: float, discard: bool, channel: str,
    as_json: bool, directory: str | None,
) -> None:
    """End the daemon and all its streams.

    The daemon requests its clients to leave, sends the accepted data and the end of each stream to
    the receivers, and removes its directory. If unsent data or logs of consumer groups remain, they
    stay in the directory for the next daemon, and the exit status is 1. With --discard they are
    removed.

    With STREAM the daemon continues. The command stops the publishers of STREAM, and waits until
    the readers have released all messages of STREAM. The stream must have credits. --channel and
    --json apply only with STREAM.
    """
    if stream_id is not None:
        drain(stream_id, channel, timeout_s, as_json, directory)
        return
    path = daemon_directory(directory)
    try:
        drained = request_drain(path, timeout_s, discard=discard)
    except DaemonNotRunning as error:
        _remove_left_behind(path, error, discard=discard)
        return
    for text in drained.discarded:
        click.echo(f"discarded: {text}", err=True)
    for text in drained.kept:
        click.echo(f"stays in {path}: {text}", err=True)
    if drained.kept:
        context.exit(_INCOMPLETE)


def _remove_left_behind(path: Path, error: DaemonNotRunning, *, discard: bool) -> None:
    """Handle the files of the last daemon if no daemon runs: remove them if requested."""
    from penstock.config.settings.models import DirectoryConfig
    from penstock.daemon.directory import claim_directory, is_left_behind

    if not is_left_behind(path):
        raise error
    if not discard:
        raise DaemonNotRunning(
            f"no daemon is running in {path}, but the last daemon left streams there: "
            f"continue them with 'penstock daemon --dir {path}', or remove them with --discard"
        )
    claim_directory(DirectoryConfig(path=str(path)), keep=True, any_layout=True).release()
    click.echo(f"removed the files that a daemon left in {path}", err=True)
