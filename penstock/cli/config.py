# SPDX-License-Identifier: Apache-2.0
"""``penstock config``: check and show configuration files."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from penstock.config.settings.load import DEFAULT_FILE, check_file


@click.group("config")
def command() -> None:
    """Check configuration files, or show the default configuration."""


@command.command("check", short_help="Report every mistake in FILE.")
@click.argument("file", type=click.Path(path_type=Path))
@click.pass_context
def check(ctx: click.Context, file: Path) -> None:
    """Report every mistake in FILE with its key, the value found and the value expected."""
    problems = check_file(file)
    for problem in problems:
        print(f"penstock: {problem}", file=sys.stderr)
    if problems:
        ctx.exit(2)
    click.echo(f"{file}: correct")


@command.command("default")
def default() -> None:
    """Write the annotated default configuration to standard output."""
    click.echo(DEFAULT_FILE.read_text(encoding="utf-8"), nl=False)
