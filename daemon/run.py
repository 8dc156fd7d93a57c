# SPDX-License-Identifier: Apache-2.0
"""Run a daemon: claim its directory, serve clients, and release the directory. The command
``penstock daemon`` calls this module."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from typing import Final, NoReturn

import trio

from penstock.config.settings.models import DaemonConfig
from penstock.core.errors import ConfigurationError, PenstockError, StorageError
from penstock.daemon.directory import ClaimedDirectory, claim_directory
from penstock.daemon.restart.ending import Signals
from penstock.daemon.server import Server

_STOP: Final = (signal.SIGTERM, signal.SIGINT)


async def run_daemon(config: DaemonConfig, *, last_act: bool = False) -> None:
    """Run a daemon until SIGTERM, SIGINT or a request to drain arrives.

    :param last_act: whether the process ends after this call. Signals are then ignored until the
        process ends.

    :raises DirectoryInUseError: a live daemon owns the directory.
    :raises VersionMismatch: the directory belongs to another program, or has another layout.
    :raises StorageError: the file system of the directory has no room for the daemon's own files.
    :raises ConfigurationError: a setting cannot be applied, for example a port that is in use.
    """
    with _stop_signals(restore=not last_act) as signals, contextlib.ExitStack() as last:
        directory = claim_directory(config.directory, keep=True)
        try:
            server = _make_server(config, directory, last)
            try:
                await server.run(signals)
            except* PenstockError as group:
                raise _first(group) from None
            finally:
                server.close()
        finally:
            directory.let_go()


@contextlib.contextmanager
def _stop_signals(*, restore: bool) -> Iterator[Signals]:
    """Handle SIGTERM and SIGINT while the directory is claimed. A signal during the start takes
    effect when the daemon has started; a signal during its end has no effect."""

    def ignore(number: int, frame: object) -> None:
        pass

    before = {number: signal.signal(number, ignore) for number in _STOP}
    try:
        with trio.open_signal_receiver(*_STOP) as signals:
            yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if restore else signal.SIG_IGN)


def _make_server(
    config: DaemonConfig, directory: ClaimedDirectory, last: contextlib.ExitStack
) -> Server:
    try:
        return Server(config, directory, last)
    except StorageError as error:
        raise StorageError(
            f"{error}: the file system of {directory.path} is too small; make room, or lower "
            "storage.counter_values_bytes and the limits"
        ) from error


def _first(group: BaseExceptionGroup[PenstockError]) -> PenstockError:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    assert isinstance(found, PenstockError)
    return found


def run(config: DaemonConfig) -> NoReturn:
    """Run a daemon like :func:`run_daemon`, but write the daemon's log to standard error and exit
    the process at the end."""
    logging.basicConfig(
        stream=sys.stderr, level=config.log.level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    if not config.directory.path:
        raise ConfigurationError("directory.path: no directory is given: use --dir")
    trio.run(partial(run_daemon, config, last_act=True))
    # Everything is closed.  Clearing the interpreter away would take longer than the rest of the
    # stop, and streams wait for the new daemon meanwhile.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)
