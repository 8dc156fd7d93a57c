# SPDX-License-Identifier: Apache-2.0
"""Which daemon directory a client means."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from penstock.core.errors import InvalidArgument

_UNIX_PATH_BYTES = 107
_LONGEST_NAME = "control.sock"


def daemon_directory(
    directory: str | os.PathLike[str] | None = None, *, environ: Mapping[str, str] | None = None
) -> Path:
    """The argument, else ``$PENSTOCK_DIR``, else ``/dev/shm/penstock-$USER``; absolute.

    :raises InvalidArgument: the path is too long for the Unix sockets in it.
    """
    env = os.environ if environ is None else environ
    if directory is None:
        chosen = env.get("PENSTOCK_DIR") or f"/dev/shm/penstock-{_user(env)}"
    else:
        chosen = os.fspath(directory)
    if not chosen:
        raise InvalidArgument("the daemon directory is empty: give a path")
    path = Path(chosen).absolute()
    if len(os.fsencode(path / _LONGEST_NAME)) > _UNIX_PATH_BYTES:
        raise InvalidArgument(
            f"daemon directory {path} is too long for Unix sockets: "
            f"at most {_UNIX_PATH_BYTES - len(_LONGEST_NAME) - 1} bytes"
        )
    return path


def _user(environ: Mapping[str, str]) -> str:
    name = environ.get("USER") or environ.get("LOGNAME")
    return name if name else str(os.getuid())
