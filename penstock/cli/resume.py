# SPDX-License-Identifier: Apache-2.0
"""``penstock resume``: lets the publishers of a stream continue."""

from __future__ import annotations

import click

from penstock.cli._common import directory_option, json_option
from penstock.cli._credits import ANSWER_S, channel_option, request, show, stream_argument
from penstock.client import GroupControl


@click.command("resume", short_help="Let the publishers of a stream continue.")
@stream_argument
@channel_option
@json_option
@directory_option
def command(stream_id: int, channel: str, as_json: bool, directory: str | None) -> None:
    """Grant the publishers of STREAM credits again."""
    with GroupControl(directory=directory, timeout_s=ANSWER_S) as orchestrator:
        show(request(orchestrator, stream_id, channel, "resume"), as_json)
