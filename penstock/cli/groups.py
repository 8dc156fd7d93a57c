# SPDX-License-Identifier: Apache-2.0
"""``penstock groups``: list the consumer groups of a daemon, or end one of them."""

from __future__ import annotations

import click

from penstock.cli._common import directory_option, json_option, print_json
from penstock.cli._tables import Column, console, table
from penstock.client import GroupControl, GroupState

_COLUMNS = (
    Column("group"), Column("stream", right=True), Column("channel", shrink=30),
    Column("logs", right=True), Column("lag", right=True), Column("read by", shrink=40),
    Column("expires in", right=True),
)


@click.group("groups", short_help="List consumer groups, or end one.")
def command() -> None:
    """List the consumer groups of a daemon, or end a group that is no longer read."""


@command.command("list", short_help="List the groups with lag, reader and expiry.")
@json_option
@directory_option
def show(as_json: bool, directory: str | None) -> None:
    """List the groups with unacknowledged bytes, reader and time to expiry."""
    with GroupControl(directory=directory, timeout_s=5.0) as control:
        groups = sorted(control.groups(), key=lambda g: (g.name, g.channel, g.stream_id))
    if as_json:
        print_json({"groups": [_plain(group) for group in groups]}, indent=2)
        return
    screen = console()
    rows = [
        [group.name, str(group.stream_id), group.channel, str(len(group.logs)), str(_lag(group)),
         group.owner or "no reader", f"{group.expires_ns / 1e9:.0f} s"]
        for group in groups
    ]
    screen.print(table("consumer groups", _COLUMNS, rows, screen.width) if rows
                 else "no consumer group")


@command.command("end", short_help="End a group; its senders go on.")
@click.argument("name")
@click.option("--channel", help="Only the group of this channel.")
@click.option("--stream", "stream_id", type=int, help="Only the group of this stream.")
@click.option("--force", is_flag=True, help="End it although a query reads it.")
@directory_option
def end(
    name: str, channel: str | None, stream_id: int | None, force: bool, directory: str | None
) -> None:
    """End the group NAME: the daemon drops its unacknowledged data, and its senders continue.

    A query whose group was ended loses that data.
    """
    with GroupControl(directory=directory, timeout_s=5.0) as control:
        found = [
            group for group in control.groups()
            if group.name == name and channel in (None, group.channel)
            and stream_id in (None, group.stream_id)
        ]
        if not found:
            raise click.ClickException(
                f"no group {name} with this channel and stream: 'penstock groups list' shows all"
            )
        for group in found:
            where = f"stream {group.stream_id} on {group.channel}"
            if group.owner and not force:
                raise click.ClickException(
                    f"group {name} of {where} was last read by {group.owner}, "
                    f"{group.owner_heard_ns / 1e9:.0f} s ago: stop this reader first, or give "
                    "--force if it has ended"
                )
            control.close_group(name=name, channel=group.channel, stream_id=group.stream_id)
            click.echo(f"ended group {name} of {where}: {_lag(group)} bytes were not acknowledged")


def _lag(group: GroupState) -> int:
    return sum(log.end_position - log.committed for log in group.logs)


def _plain(group: GroupState) -> dict[str, object]:
    return {
        "name": group.name, "channel": group.channel, "stream_id": group.stream_id,
        "owner": group.owner, "lag_bytes": _lag(group), "logs": len(group.logs),
        "expires_s": group.expires_ns / 1e9,
    }
