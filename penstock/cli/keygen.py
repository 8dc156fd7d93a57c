# SPDX-License-Identifier: Apache-2.0
"""``penstock keygen``: creates the CURVE keys with which a client may use a daemon's consumer
groups over TCP.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from penstock.config.protocol.keys import load_public_key

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@click.command("keygen")
@click.option("--out", "directory", metavar="DIR", default=".", show_default=True,
              type=click.Path(file_okay=False, path_type=Path), help="Where the files go.")
@click.option("--name", metavar="NAME", required=True,
              help="What the files are called: one key for each user or daemon.")
@click.option("--force", is_flag=True, help="Replace a key of this name.")
def command(directory: Path, name: str, force: bool) -> None:
    """Make a CURVE key pair in ZeroMQ's certificate format.

    The command writes NAME.key (public) and NAME.key_secret (mode 600), and prints the line for a
    daemon's allow-list (control_tcp.clients).
    """
    if not _NAME.fullmatch(name):
        raise click.BadParameter(
            f"{name!r}: expected letters, digits, '.', '_' and '-', first a letter or digit",
            param_hint="--name",
        )
    directory.mkdir(parents=True, exist_ok=True)
    public, secret = directory / f"{name}.key", directory / f"{name}.key_secret"
    for path in (public, secret):
        if path.exists() and not force:
            raise click.ClickException(
                f"{path} exists already: give another --name, or replace it with --force"
            )
    import zmq.auth

    before = os.umask(0o077)            # other users can never read the secret
    try:
        for path in (public, secret):
            path.unlink(missing_ok=True)
        zmq.auth.create_certificates(directory, name)
    finally:
        os.umask(before)
    public.chmod(0o644)
    click.echo(f"wrote {public} and {secret}", err=True)
    click.echo(f"{load_public_key(public)} {name}")
