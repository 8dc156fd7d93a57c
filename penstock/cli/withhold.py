# SPDX-License-Identifier: Apache-2.0
"""``penstock withhold``: stops the publishers of a stream."""

from __future__ import annotations

import click

from penstock.cli._common import directory_option, json_option
from penstock.cli._credits import (
    ANSWER_S,
    channel_option,
    hold,
    request,
    show,
    stream_argument,
    timeout_option,
)
from penstock.client import GroupControl


@click.command("withhold", short_help="Stop the publishers of a stream with credits.")
@stream_argument
@channel_option
@timeout_option
@json_option
@directory_option
def command(
    stream_id: int, channel: str, timeout_s: float, as_json: bool, directory: str | None
) -> None:
    """Stop the publishers of STREAM, and wait until no message is in flight. During the wait, the
    subscribers must continue to poll, so that they release the messages in flight. If messages are
    still in flight at the time-out, the publishers get credits again, and the exit code is 1.
    """
    with GroupControl(directory=directory, timeout_s=ANSWER_S) as orchestrator:
        report = hold(orchestrator, stream_id, channel, timeout_s)
        if not report["complete"]:
            request(orchestrator, stream_id, channel, "resume")
    show(report, as_json)
    if not report["complete"]:
        raise click.ClickException(
            f"stream {stream_id}: messages were outstanding after {timeout_s:g} s; its publishers "
            "continue"
        )
