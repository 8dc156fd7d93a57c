# SPDX-License-Identifier: Apache-2.0
"""Claim, clean and remove the daemon's directory. Only one daemon at a time can claim a directory.

As long as a daemon runs, it holds a lock (flock) on the file ``DIR/daemon.lock``, whose text names
the daemon. A directory with entries but without ``daemon.lock`` belongs to another program, and the
daemon changes nothing in it.
"""

from __future__ import annotations

import errno
import fcntl
import grp
import os
import stat
import struct
from pathlib import Path
from typing import Final

import attrs

from penstock.config.settings.models import DirectoryConfig
from penstock.core import admin
from penstock.core.errors import ConfigurationError, DirectoryInUseError, VersionMismatch
from penstock.daemon.restart import journal

LOCK_NAME: Final = "daemon.lock"
_LOCK_HEAD: Final = "penstock 1"
_FILES: Final = (
    "cnc.dat", "penstock.dat", "loss-report.dat", "control.sock", "events.sock", "groups.sock",
    "lease.sock", "lease.sock.new", "metrics.sock", "registry.journal", "registry.new",
)
_SOCKETS: Final = (
    "control.sock", "events.sock", "groups.sock", "lease.sock", "lease.sock.new", "metrics.sock",
)
_FOLDERS: Final = ("publications", "images")
#: Files of the clients: members of consumer groups, and relays (client/_members.py,
#: client/_relay_state.py).
_OF_CLIENTS: Final = ("members", "relays")
_LOG_SUFFIX: Final = ".logbuffer"
_SHARED_HEAD: Final = struct.Struct("<8sI")     # magic, version
_SHARED_MAGIC: Final = b"PENSTOCK"


@attrs.define
class ClaimedDirectory:
    """A directory that this process owns until :meth:`release`."""

    path: Path
    mode: int
    file_mode: int
    made_by_us: bool
    _lock_fd: int
    owed: str = ""                      # content that a new daemon needs; empty: none

    def protect(self, name: str) -> None:
        """Set the mode (access rights) of a socket or file to the configured mode."""
        os.chmod(self.path / name, self.file_mode)

    def wipe(self, *, keep_streams: bool = False) -> None:
        """Remove the files of a dead daemon. With ``keep_streams``, remove only the sockets of the
        dead daemon."""
        if keep_streams:
            for name in _SOCKETS:
                (self.path / name).unlink(missing_ok=True)
        else:
            _wipe(self.path)

    def log_bytes(self) -> int:
        """Return the number of bytes of memory that the logs in the directory occupy."""
        folders = [self.path / name for name in _FOLDERS]
        return sum(e.stat().st_blocks * 512 for folder in folders for e in os.scandir(folder))

    def let_go(self) -> None:
        """Release the directory at the daemon's end. If the next daemon needs the streams in the
        directory (``owed``), keep the streams; otherwise remove the daemon's files."""
        if self.owed:
            self.leave()
        else:
            self.release()

    def leave(self) -> None:
        """Leave the directory to the next daemon: remove only the sockets, and release the lock."""
        for name in _SOCKETS:
            (self.path / name).unlink(missing_ok=True)
        os.close(self._lock_fd)

    def release(self) -> None:
        """Remove all files of the daemon. If a daemon created the directory, remove the directory
        too. Release the lock."""
        _wipe(self.path)
        for name in (*_FOLDERS, *_OF_CLIENTS):
            _remove_folder(self.path / name)
        (self.path / LOCK_NAME).unlink(missing_ok=True)
        if self.made_by_us:
            _remove_folder(self.path)
        os.close(self._lock_fd)


def claim_directory(
    config: DirectoryConfig, *, keep: bool = False, any_layout: bool = False
) -> ClaimedDirectory:
    """Claim the directory for this daemon. If ``keep`` is not set, remove the files that a dead
    daemon left there.

    :param any_layout: claim the directory even if another version of penstock wrote its files.

    :raises DirectoryInUseError: a live daemon owns the directory.
    :raises VersionMismatch: the directory belongs to another program, or to a daemon with another
        layout.
    :raises ConfigurationError: the directory cannot be made or written.
    """
    path = Path(config.path)
    try:
        made = _make(path, config)
        lock_fd = _lock(path)
        try:
            made = made or _made_by_old_daemon(path, lock_fd)
            if not any_layout:
                _refuse_other_layout(path)
        except VersionMismatch:
            os.close(lock_fd)
            raise
        _write_owner(lock_fd, made)
        if not keep:
            _wipe(path)
        for name in _FOLDERS:
            folder = path / name
            folder.mkdir(exist_ok=True)
            os.chmod(folder, stat.S_IMODE(path.stat().st_mode))
    except OSError as error:
        raise ConfigurationError(
            f"directory.path: {path}: {error.strerror}; choose a directory that this user can "
            "write, with --dir"
        ) from error
    return ClaimedDirectory(path, config.mode, config.file_mode, made, lock_fd)


def _make(path: Path, config: DirectoryConfig) -> bool:
    """Make the directory; return True if it did not exist."""
    try:
        path.mkdir(parents=True, exist_ok=False)
    except FileExistsError:
        if not path.is_dir():
            raise VersionMismatch(f"{path} is not a directory: choose another with --dir") from None
        names = {entry.name for entry in path.iterdir()}
        if names and LOCK_NAME not in names:
            raise VersionMismatch(
                f"{path} holds files of another program ({sorted(names)[0]}): choose another "
                "directory with --dir, or empty this one"
            ) from None
        return False
    mode = config.mode
    if config.group:
        try:
            os.chown(path, -1, grp.getgrnam(config.group).gr_gid)
        except KeyError:
            path.rmdir()
            raise ConfigurationError(
                f"directory.group: there is no group {config.group!r} on this host"
            ) from None
        mode |= stat.S_ISGID            # files in it get the group
    os.chmod(path, mode)
    return True


def _lock(path: Path) -> int:
    """Return the locked lock file. If its owner removed the file meanwhile, open the new one."""
    name = path / LOCK_NAME
    while True:
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = _owner(fd)
            os.close(fd)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise DirectoryInUseError(
                f"a daemon is already running in {path}{owner}: stop it, or choose another "
                "directory with --dir"
            ) from None
        try:
            if os.stat(name).st_ino == os.fstat(fd).st_ino:
                return fd
        except FileNotFoundError:
            pass
        os.close(fd)


def _text(fd: int) -> list[str]:
    return os.pread(fd, 256, 0).decode("ascii", "replace").splitlines()


def _owner(fd: int) -> str:
    lines = _text(fd)
    return f" (pid {lines[1]})" if len(lines) > 1 else ""


def _made_by_old_daemon(path: Path, fd: int) -> bool:
    lines = _text(fd)
    if lines and lines[0] != _LOCK_HEAD:
        raise VersionMismatch(
            f"{path} was left by another version of penstock ({lines[0][:40]}): remove it, or "
            "choose another directory with --dir"
        )
    return len(lines) > 2 and lines[2] == "made"


def _refuse_other_layout(path: Path) -> None:
    """Refuse a directory whose streams this version cannot continue."""
    other = []
    found = journal.format_of(path)
    if found not in (None, journal.FORMAT):
        other.append(f"{journal.NAME} of format {found}, this version has {journal.FORMAT}")
    version = _shared_version(path)
    if version not in (None, admin.SHARED_VERSION):
        other.append(
            f"penstock.dat of layout {version}, this version has {admin.SHARED_VERSION}"
        )
    if other:
        raise VersionMismatch(
            f"{path} was left by another version of penstock ({'; '.join(other)}): start that "
            f"version to continue its streams, or remove them with 'penstock drain --discard "
            f"--dir {path}'"
        )


def _shared_version(path: Path) -> int | None:
    """Return the layout version of ``penstock.dat``; None: the file is missing or incomplete."""
    try:
        with (path / "penstock.dat").open("rb") as file:
            magic, version = _SHARED_HEAD.unpack(file.read(_SHARED_HEAD.size))
    except (OSError, struct.error):
        return None
    return int(version) if magic == _SHARED_MAGIC else None


def is_left_behind(path: Path) -> bool:
    """Return whether the directory contains files that a daemon has left."""
    return (path / LOCK_NAME).is_file()


def _write_owner(fd: int, made: bool) -> None:
    text = f"{_LOCK_HEAD}\n{os.getpid()}\n{'made' if made else 'found'}\n"
    os.ftruncate(fd, 0)
    os.pwrite(fd, text.encode(), 0)


def _wipe(path: Path) -> None:
    """Remove the files of a dead daemon."""
    for name in _FILES:
        (path / name).unlink(missing_ok=True)
    for folder in _FOLDERS:
        if (path / folder).is_dir():
            for entry in (path / folder).iterdir():
                if entry.name.endswith(_LOG_SUFFIX):
                    entry.unlink(missing_ok=True)
    for name in _OF_CLIENTS:
        if (path / name).is_dir():
            for entry in (path / name).iterdir():
                entry.unlink(missing_ok=True)


def _remove_folder(path: Path) -> None:
    try:
        path.rmdir()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EACCES, errno.EBUSY):
            raise
