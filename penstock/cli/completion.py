# SPDX-License-Identifier: Apache-2.0
"""``penstock completion``: prints a script with which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script that completes penstock's commands and options.

    For bash, run: penstock completion bash > ~/.local/share/bash-completion/completions/penstock
    """
    from penstock.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "penstock", "_PENSTOCK_COMPLETE").source())
