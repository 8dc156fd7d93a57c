# SPDX-License-Identifier: Apache-2.0
"""What ``--help`` says: every command and option has words, and they fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from penstock.cli import cli, main

PAGE = Path(__file__).parents[3] / "docs" / "command-line.md"


def commands(
    group: click.Group = cli, before: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Context]]:
    """(words of the command line, context) of each, with those of groups."""
    context = click.Context(group, info_name="penstock")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        words = (*before, name)
        if isinstance(command, click.Group):
            yield from commands(command, words)
        yield " ".join(words), click.Context(command, info_name=name, terminal_width=80)


ALL = dict(commands())


@pytest.mark.parametrize("words", sorted(ALL))
def test_every_command_and_option_is_explained(words: str) -> None:
    context = ALL[words]
    text = context.command.get_help(context)
    for option in context.command.get_params(context):
        if isinstance(option, click.Option):
            assert option.help, f"{words} {option.opts[0]}"
    for type_name in ("PARSE_", "FILENAME"):    # types are told in words of users
        assert type_name not in text
    short = context.command.get_short_help_str(limit=66)
    assert short
    assert not short.endswith("...")


def test_the_page_has_every_command() -> None:
    page = PAGE.read_text(encoding="utf-8")
    named = set(re.findall(r"`penstock ([a-z]+(?: [a-z]+)?)", page))
    assert {words for words in ALL if words not in ("config", "sim")} <= named


@pytest.mark.parametrize("words", [[], ["sim"], ["config"]], ids=lambda words: " ".join(words))
def test_a_command_without_its_arguments_prints_the_help(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert lines[0].startswith(f"Usage: {' '.join(['penstock', *words])} [OPTIONS] COMMAND")
    assert "Commands:" in lines
    assert main([*words, "--help"]) == 0
    assert capsys.readouterr().out == shown.err
