# SPDX-License-Identifier: Apache-2.0
"""``penstock groups``: list the consumer groups of a daemon and their members, or end a group."""

from __future__ import annotations

from typing import Any

import click

from penstock.cli._common import directory_option, json_option, print_json
from penstock.cli._tables import Column, console, table
from penstock.client import GroupControl, GroupState
from penstock.client._directory import daemon_directory
from penstock.client._members import is_alive, look

_COLUMNS = (
    Column("group"), Column("stream", right=True), Column("channel", shrink=30),
    Column("logs", right=True), Column("lag", right=True), Column("members", right=True, drop=1),
    Column("read by", shrink=40), Column("expires in", right=True),
)
_MEMBER_COLUMNS = (
    Column("group", drop=3), Column("stream", right=True, drop=2), Column("channel", shrink=20),
    Column("client", shrink=12), Column("pid", right=True), Column("state"),
    Column("session", right=True, drop=1), Column("from", right=True, drop=4),
    Column("to", right=True, drop=5), Column("bytes", right=True),
)


@click.group("groups", short_help="List consumer groups and members, or end a group.")
def command() -> None:
    """List the consumer groups of a daemon and their members, or end a group that is no longer
    read."""


@command.command("list", short_help="List the groups with lag, reader and expiry.")
@json_option
@directory_option
def show(as_json: bool, directory: str | None) -> None:
    """List the consumer groups with their unacknowledged bytes, their reader and the time until
    they expire."""
    with GroupControl(directory=directory, timeout_s=5.0) as control:
        groups = sorted(control.groups(), key=lambda g: (g.name, g.channel, g.stream_id))
    if as_json:
        print_json({"groups": [_plain(group, directory) for group in groups]}, indent=2)
        return
    screen = console()
    rows = [
        [group.name, str(group.stream_id), group.channel, str(len(group.logs)), str(_lag(group)),
         str(len(_members(group, directory))), group.owner or "no reader",
         f"{group.expires_ns / 1e9:.0f} s"]
        for group in groups
    ]
    screen.print(table("consumer groups", _COLUMNS, rows, screen.width) if rows
                 else "no consumer group")


@command.command("members", short_help="List the members and the batches that they hold.")
@click.argument("name", required=False)
@json_option
@directory_option
def members(name: str | None, as_json: bool, directory: str | None) -> None:
    """List the members of all groups, or of the group NAME, with the batches that they hold.

    A member holds each batch that it has received and not committed. If a member is stopped
    (SIGSTOP), it keeps its batch, and other members receive the later messages. Members run on the
    daemon's host.
    """
    with GroupControl(directory=directory, timeout_s=5.0) as control:
        groups = sorted(
            (group for group in control.groups() if name in (None, group.name)),
            key=lambda g: (g.name, g.channel, g.stream_id),
        )
    found = [
        {"group": group.name, "channel": group.channel, "stream_id": group.stream_id, **member}
        for group in groups for member in _members(group, directory)
    ]
    if as_json:
        print_json({"members": found}, indent=2)
        return
    rows = []
    for member in found:
        head = [member["group"], str(member["stream_id"]), member["channel"], member["client"],
                str(member["pid"]), member["state"]]
        for held in member["batches"]:
            rows.append([
                *head, str(held["session_id"]), str(held["start"]), str(held["end"]),
                str(held["end"] - held["start"]),
            ])
        if not member["batches"]:
            rows.append([*head, "", "", "", "0"])
    screen = console()
    screen.print(table("members", _MEMBER_COLUMNS, rows, screen.width) if rows
                 else "no member of a consumer group")


@command.command("end", short_help="End a group; its senders go on.")
@click.argument("name")
@click.option("--channel", help="Only the group of this channel.")
@click.option("--stream", "stream_id", type=int, help="Only the group of this stream.")
@click.option("--force", is_flag=True, help="End it although a query reads it.")
@directory_option
def end(
    name: str, channel: str | None, stream_id: int | None, force: bool, directory: str | None
) -> None:
    """End the group NAME: the daemon drops the group's unacknowledged data, and senders no longer
    wait for the group. If a Spark query still reads the group, the query loses the data that it has
    not acknowledged.
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
                    f"{group.owner_heard_ns / 1e9:.0f} s ago: stop this reader first. If this "
                    "reader has ended, give --force"
                )
            control.close_group(name=name, channel=group.channel, stream_id=group.stream_id)
            click.echo(f"ended group {name} of {where}: {_lag(group)} bytes were not acknowledged")


def _lag(group: GroupState) -> int:
    return sum(log.end_position - log.committed for log in group.logs)


def _members(group: GroupState, directory: str | None) -> list[dict[str, Any]]:
    """Return the members of a group, with the batches that each holds."""
    shares = look(daemon_directory(directory), group.name, group.channel, group.stream_id)
    held: dict[str, list[dict[str, int]]] = {}
    for (session_id, _), log in shares.logs.items():
        for claim in log.claims:
            held.setdefault(claim.member, []).append(
                {"session_id": session_id, "start": claim.start, "end": claim.end}
            )
    return [
        {"client": each.client, "pid": each.pid, "batches": held.get(each.member, []),
         "state": "live" if is_alive(each.member) else "dead"}
        for each in shares.members
    ]


def _plain(group: GroupState, directory: str | None) -> dict[str, object]:
    return {
        "members": len(_members(group, directory)),
        "name": group.name, "channel": group.channel, "stream_id": group.stream_id,
        "owner": group.owner, "lag_bytes": _lag(group), "logs": len(group.logs),
        "expires_s": group.expires_ns / 1e9,
    }
