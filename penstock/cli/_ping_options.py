# SPDX-License-Identifier: Apache-2.0
"""Options of both ``penstock ping`` and ``penstock pong``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from penstock.cli._common import STREAM_ID

_OPTIONS: Final = (
    click.option("--ping-channel", metavar="CHANNEL", show_default=True,
                 default="aeron:udp?endpoint=localhost:20123", help="Where messages go."),
    click.option("--ping-stream", type=STREAM_ID, metavar="STREAM", default=1002,
                 show_default=True, help="And in which stream."),
    click.option("--pong-channel", metavar="CHANNEL", show_default=True,
                 default="aeron:udp?endpoint=localhost:20124", help="Where they come back."),
    click.option("--pong-stream", type=STREAM_ID, metavar="STREAM", default=1003,
                 show_default=True, help="And in which stream."),
)


def both_ways(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add to a command the options for the channels and streams of pings and pongs."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
