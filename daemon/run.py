# SPDX-License-Identifier: Apache-2.0
"""A daemon's life from the claim of its directory to its release; ``penstock daemon`` is this."""

from __future__ import annotations

import logging
import sys

import trio

from penstock.config.models import DaemonConfig
from penstock.core.errors import ConfigurationError, PenstockError, StorageError
from penstock.daemon.directory import ClaimedDirectory, claim_directory
from penstock.daemon.server import Server


async def run_daemon(config: DaemonConfig) -> None:
    """Runs a daemon until SIGTERM or SIGINT.

    :raises DirectoryInUseError: a live daemon owns the directory.
    :raises VersionMismatch: the directory is not penstock's.
    :raises StorageError: its file system has no room for the daemon's own files.
    :raises ConfigurationError: a setting cannot be put into effect, e.g. a port is in use.
    """
    directory = claim_directory(config.directory, keep=True)
    try:
        server = _make_server(config, directory)
        try:
            await server.run()
        except* PenstockError as group:
            raise _first(group) from None
        finally:
            server.close()
    finally:
        directory.let_go()


def _make_server(config: DaemonConfig, directory: ClaimedDirectory) -> Server:
    try:
        return Server(config, directory)
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


def run(config: DaemonConfig) -> None:
    """The same, as a program: logs to standard error."""
    logging.basicConfig(
        stream=sys.stderr, level=config.log.level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    if not config.directory.path:
        raise ConfigurationError("directory.path: no directory is given: use --dir")
    trio.run(run_daemon, config)
