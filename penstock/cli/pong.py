# SPDX-License-Identifier: Apache-2.0
"""``penstock pong``: returns each message that it receives from ``penstock ping``."""

from __future__ import annotations

import click

from penstock.cli._common import (
    connect_option,
    connected,
    directory_option,
    parse_count,
    reattach_option,
)
from penstock.cli._ping_options import both_ways
from penstock.client import Header
from penstock.core.errors import PenstockError

_SEND_TIMEOUT_S = 5.0


@click.command("pong", short_help="Return the messages of a 'penstock ping'.")
@both_ways
@click.option("--count", type=parse_count, metavar="COUNT", help="End after this many messages.")
@directory_option
@connect_option
@reattach_option
def command(
    ping_channel: str,
    ping_stream: int,
    pong_channel: str,
    pong_stream: int,
    count: int | None,
    directory: str | None,
    connect_s: float,
    reattach_s: float,
) -> None:
    """Send every message of the ping channel back on the pong channel, until Ctrl-C."""
    returned = 0
    with (
        connected(directory, "penstock pong", connect_s, reattach_s) as client,
        client.add_subscription(ping_channel, ping_stream) as pings,
        client.add_exclusive_publication(pong_channel, pong_stream) as pongs,
    ):

        def release(message: memoryview, header: Header) -> None:
            nonlocal returned
            returned += 1
            try:
                pongs.send(
                    message,
                    _SEND_TIMEOUT_S,
                    reserved_value=header.reserved_value,
                    wait_connected=False,
                )
            except PenstockError as error:
                if not client.is_daemon_alive:
                    raise
                click.echo(f"penstock: not returned: {error}", err=True)

        while count is None or returned < count:
            if not pings.poll(release, 64 if count is None else min(64, count - returned)):
                pings.wait()
