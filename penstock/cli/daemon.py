# SPDX-License-Identifier: Apache-2.0
"""``penstock daemon``: run the daemon of this host."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Final

import attrs
import click

from penstock.client._directory import daemon_directory
from penstock.config.settings.models import DaemonConfig, ImpairmentConfig
from penstock.core.errors import ConfigurationError

#: Name in --impair to keys of the configuration's [impairment] table.
_IMPAIRMENTS: Final = {
    "loss": ("send_loss_percent", "recv_loss_percent"),
    "send-loss": ("send_loss_percent",),
    "recv-loss": ("recv_loss_percent",),
    "duplicate": ("duplicate_percent",),
    "reorder": ("reorder_percent",),
    "corrupt": ("corrupt_percent",),
    "delay": ("delay_ns",),
    "jitter": ("jitter_ns",),
    "seed": ("seed",),
}
_NUMBER: Final = re.compile(r"\d+(\.\d+)?")


@click.command("daemon")
@click.option("--config", "config_file", type=click.Path(path_type=Path), metavar="FILE",
              help="Configuration in TOML; see 'penstock config'.")
@click.option("--dir", "directory", metavar="DIR",
              help="Directory shared with clients.  Default: the configuration's, then "
              "$PENSTOCK_DIR, then /dev/shm/penstock-$USER.")
@click.option("--threading", type=click.Choice(["auto", "shared", "dedicated"]),
              help="One thread for sender and receiver, or one each.")
@click.option("--idle", type=click.Choice(["park", "backoff", "yield", "spin"]),
              help="What a thread without work does.")
@click.option("--trace", "trace_file", metavar="FILE",
              help="Write what happens, and samples of all streams, into FILE as JSON lines; "
              "'penstock sim plot' draws it.")
@click.option("--drain", is_flag=True,
              help="On SIGTERM or Ctrl-C end all streams and remove the directory, instead of "
              "leaving both to the next daemon.")
@click.option("--impair", metavar="WORDS",
              help="A bad network, for tests: loss=5%,delay=10ms,jitter=1ms,seed=1; also "
              "send-loss, recv-loss, duplicate, reorder, corrupt.  loss goes both ways.")
def command(
    config_file: Path | None,
    directory: str | None,
    threading: str | None,
    idle: str | None,
    trace_file: str | None,
    drain: bool,
    impair: str | None,
) -> None:
    """Run the daemon until SIGTERM or Ctrl-C.

    When the daemon ends, it leaves its streams to the next daemon in the directory. Use 'penstock
    drain' to end the streams instead.
    """
    config = DaemonConfig()
    if config_file is not None:
        from penstock.config.settings.load import load_file

        config = load_file(config_file)
    chosen = daemon_directory(directory or config.directory.path or None)
    config = attrs.evolve(config, directory=attrs.evolve(config.directory, path=str(chosen)))
    if threading is not None:
        config = attrs.evolve(config, agents=attrs.evolve(config.agents, threading=threading))
    if idle is not None:
        config = attrs.evolve(config, agents=attrs.evolve(config.agents, idle=idle))
    if trace_file is not None:
        config = attrs.evolve(config, trace=attrs.evolve(config.trace, file=trace_file))
    if drain:
        config = attrs.evolve(config, stop=attrs.evolve(config.stop, drain=True))
    if impair is not None:
        config = attrs.evolve(config, impairment=parse_impairment(impair))
    # Only this command imports the control plane. Garbage collection during the import is useless.
    gc.disable()
    from penstock.daemon.run import run

    gc.enable()
    run(config)


def parse_impairment(words: str) -> ImpairmentConfig:
    """Parse simulated network faults from a text such as ``loss=5%,seed=1``.

    :raises ConfigurationError: a name or value is wrong; the text of the exception lists the
        accepted ones.
    """
    from penstock.config.settings.load import load_text

    lines = ["[impairment]"]
    for word in filter(None, (part.strip() for part in words.split(","))):
        key, equals, value = (piece.strip() for piece in word.partition("="))
        if not equals or key not in _IMPAIRMENTS or not value:
            raise ConfigurationError(
                f"--impair: {word!r} is not understood: expected NAME=VALUE with a name of "
                f"{', '.join(_IMPAIRMENTS)}"
            )
        number = value.removesuffix("%")
        written = number if _NUMBER.fullmatch(number) else f"'{number}'"
        lines.extend(f"{name} = {written}" for name in _IMPAIRMENTS[key])
    return load_text("\n".join(lines), source="--impair").impairment
