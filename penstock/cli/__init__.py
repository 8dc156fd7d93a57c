# SPDX-License-Identifier: Apache-2.0
"""The command line: ``penstock COMMAND``.

Commands write data to standard output, and everything else to standard error. Commands show
progress only on a terminal. For an error, a command prints one line on standard error, and its exit
status is 2.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Final

import click

import penstock
from penstock.core.errors import PenstockError

#: Command name to the module below ``penstock.cli`` that has it as ``command``.
COMMANDS: Final = {
    "up": "up",
    "down": "down",
    "daemon": "daemon",
    "drain": "drain",
    "config": "config",
    "pub": "pub",
    "sub": "sub",
    "relay": "relay",
    "ping": "ping",
    "pong": "pong",
    "stat": "stat",
    "flows": "flows",
    "groups": "groups",
    "withhold": "withhold",
    "resume": "resume",
    "loss": "loss",
    "trace": "trace",
    "sim": "sim",
    "bench": "bench",
    "keygen": "keygen",
    "service": "service",
    "completion": "completion",
    "attach": "attach",
}
EXIT_ERROR: Final = 2
EXIT_INTERRUPTED: Final = 130
EXIT_BROKEN_PIPE: Final = 141


class _LazyGroup(click.Group):
    """Loads a command's module on request, so that each command starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if self._module(name) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = self._module(cmd_name)
        if module is None:
            return None
        command: click.Command = importlib.import_module(module).command
        return command

    def invoke(self, ctx: click.Context) -> object:
        """Handle Ctrl-C and a closed output pipe without the messages that Click would print."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            _silence_stdout()
            ctx.exit(EXIT_BROKEN_PIPE)

    @staticmethod
    def _module(name: str) -> str | None:
        module = f"penstock.cli.{COMMANDS.get(name, '')}"
        if name not in COMMANDS or importlib.util.find_spec(module) is None:
            return None
        return module


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(penstock.__version__, prog_name="penstock")
def cli() -> None:
    """Ordered, reliable message streams between processes and hosts."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; return its exit status."""
    try:
        result = cli.main(args=arguments, prog_name="penstock", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the last flush
        _silence_stdout()
        return EXIT_BROKEN_PIPE
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return EXIT_ERROR
    except click.ClickException as error:
        return _complain(_usage_hint(error))
    except PenstockError as error:
        return _complain(str(error))
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        return _complain(f"{name}{error.strerror or error}")
    except ImportError as error:
        return _complain(str(error))


def _usage_hint(error: click.ClickException) -> str:
    text = error.format_message()
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{text} (see '{error.ctx.command_path} --help')"
    return text


def _complain(text: str) -> int:
    line = " ".join(text.split())
    print(f"penstock: {line}", file=sys.stderr)
    return EXIT_ERROR


def _silence_stdout() -> None:
    """Redirect standard output after its reader has gone, so that the interpreter's last flush
    raises no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
