# SPDX-License-Identifier: Apache-2.0
"""``penstock service``: install the files for systemd that are part of the package."""

from __future__ import annotations

import importlib.resources
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Final

import click

#: File of the package to its place below the root.
PLACES: Final = {
    "penstock.service": "etc/systemd/system/penstock.service",
    "penstock-relay@.service": "etc/systemd/system/penstock-relay@.service",
    "penstock.sysusers.conf": "etc/sysusers.d/penstock.conf",
    "penstock.tmpfiles.conf": "etc/tmpfiles.d/penstock.conf",
    "penstock.sysctl.conf": "etc/sysctl.d/penstock.conf",
}
_START: Final = re.compile(r"^ExecStart=\S+", re.MULTILINE)


@click.group("service")
def command() -> None:
    """Install the daemon as a service of systemd."""


@command.command("install")
@click.option("--root", metavar="DIR", default="/", show_default=True,
              type=click.Path(file_okay=False, path_type=Path),
              help="Where etc/ is: another directory for an image or a package.")
@click.option("--program", metavar="PATH", default="",
              help="The penstock command that the service runs; default: this one.")
@click.option("--force", is_flag=True, help="Replace files that differ.")
def install(root: Path, program: str, force: bool) -> None:
    """Write the files of a systemd service for the daemon. The written files define the service
    unit, its user, its directory and a kernel setting. The command does not start the service; it
    prints the commands with which you start it.
    """
    texts = {place: _text(name, program or _program()) for name, place in PLACES.items()}
    differing = [
        place for place, text in texts.items()
        if (root / place).exists() and (root / place).read_text("utf-8") != text
    ]
    if differing and not force:
        raise click.ClickException(
            f"{root / differing[0]} exists with other contents: compare it, then use --force"
        )
    for place, text in texts.items():
        path = root / place
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"cannot write {path}: {error.strerror}") from None
        click.echo(f"wrote {path}", err=True)
    click.echo("systemd-sysusers && systemd-tmpfiles --create && sysctl --system")
    click.echo("systemctl daemon-reload && systemctl enable --now penstock")


def _text(name: str, program: str) -> str:
    """A file of the package; the unit runs ``program``."""
    text = importlib.resources.files("penstock.systemd").joinpath(name).read_text("utf-8")
    if name.endswith(".service"):
        text = _START.sub(lambda _match: f"ExecStart={program}", text)
    return text


def _program() -> str:
    """Absolute path of this command."""
    beside = Path(sys.executable).with_name("penstock")
    if beside.exists():
        return str(beside)
    found = shutil.which("penstock") or sys.argv[0]
    return os.path.abspath(found)
