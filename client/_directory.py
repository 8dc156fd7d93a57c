# SPDX-License-Identifier: Apache-2.0
"""Find the daemon directory of a client."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.core.errors import ChannelRefused, InvalidArgument

_UNIX_PATH_BYTES = 107
_LONGEST_NAME = "control.sock"


def daemon_directory(
    directory: str | os.PathLike[str] | None = None, *, environ: Mapping[str, str] | None = None
) -> Path:
    """Return the daemon's directory as an absolute path: the argument if it is given, else
    ``$PENSTOCK_DIR``, else ``/dev/shm/penstock-$USER``.

    :raises InvalidArgument: the path is so long that the path of a Unix socket in the directory
        would exceed the system's limit.
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


def no_daemon(directory: Path, *, waited_s: float = 0.0) -> str:
    """Return the error text for a directory in which no daemon answers. ``waited_s`` is the time
    that the client has waited, in seconds."""
    waited = f" (waited {waited_s:g} s for one)" if waited_s else ""
    return (
        f"no daemon is running in {directory}{waited}: start one with '{up_command(directory)}', "
        "or name another directory with --dir or $PENSTOCK_DIR"
    )


def gone_text(directory: Path, why: str) -> str:
    """Return the error text for a client that has lost its daemon permanently."""
    reason = f" ({why})" if why else ""
    return f"the daemon in {directory} is gone{reason}: connect again"


def up_command(directory: Path) -> str:
    """Return the command that starts a daemon in the directory."""
    option = "" if directory == daemon_directory() else f" --dir {directory}"
    return f"penstock up{option}"


def not_allowed(path: Path) -> ChannelRefused:
    """Return the exception for a file or socket of the daemon that this user may not access."""
    blocked = _blocked(path)
    try:
        found = blocked.stat()
    except OSError:
        return ChannelRefused(
            f"this user may not reach {path}: run as the daemon's user", code="permission"
        )
    owner, group = _name_of(pwd.getpwuid, found.st_uid), _name_of(grp.getgrgid, found.st_gid)
    return ChannelRefused(
        f"this user may not reach {path}: {blocked} belongs to user {owner}, group {group}, mode "
        f"{stat.S_IMODE(found.st_mode):04o}; join that group, or run as {owner}",
        code="permission",
    )


def _blocked(path: Path) -> Path:
    """Return the outermost part of ``path`` that this user may not access."""
    for part in (*reversed(path.parents), path):
        if part != path and not os.access(part, os.X_OK):
            return part
    return path


def _name_of(look_up: Callable[[int], Sequence[Any]], number: int) -> str:
    try:
        return str(look_up(number)[0])
    except KeyError:
        return str(number)
