# SPDX-License-Identifier: Apache-2.0
"""CURVE keys in ZeroMQ's certificate files, as ``penstock keygen`` writes them."""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path

import attrs
import zmq
import zmq.auth

from penstock.core.errors import ConfigurationError

_Z85_CHARS = 40


@attrs.frozen(kw_only=True)
class CurveKeys:
    """A CURVE key pair. Each key is a text of 40 characters in the Z85 encoding."""

    public: str
    secret: str = attrs.field(repr=False)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CurveKeys:
        """Read the secret file (``NAME.key_secret``) that ``penstock keygen`` wrote.

        :raises ConfigurationError: the file cannot be read, holds no secret key, or is readable
            by other users.
        """
        where = Path(path)
        public, secret = _read(where)
        if not secret:
            raise ConfigurationError(
                f"{where}: holds no secret key: name the .key_secret file that 'penstock keygen' "
                "wrote"
            )
        mode = stat.S_IMODE(where.stat().st_mode)
        if mode & 0o077:
            raise ConfigurationError(
                f"{where}: a secret key that others may read (mode {mode:o}): chmod 600 {where}"
            )
        _check_pair(where, public, secret)
        return cls(public=public, secret=secret)


def load_public_key(path: str | os.PathLike[str]) -> str:
    """Return the public key from a certificate file, public or secret.

    :raises ConfigurationError: the file cannot be read or holds no key.
    """
    return _read(Path(path))[0]


def check_public_key(text: str, what: str) -> str:
    """Return ``text`` if it is a public key in Z85.

    :raises ConfigurationError: ``text`` is not a public key. The exception's text begins with the
        text ``what``.
    """
    try:
        if len(text) != _Z85_CHARS or len(zmq.utils.z85.decode(text.encode("ascii"))) != 32:
            raise ValueError
    except (ValueError, KeyError, UnicodeError, struct.error):  # struct.error: five above 2^32
        raise ConfigurationError(
            f"{what}: {text[:60]!r} is no CURVE public key: {_Z85_CHARS} characters of Z85, as in "
            "the .key file of 'penstock keygen'"
        ) from None
    return text


def _read(path: Path) -> tuple[str, str]:
    try:
        public, secret = zmq.auth.load_certificate(path)
    except OSError as error:
        reason = error.strerror or "no such file"
        raise ConfigurationError(f"{path}: cannot read the key file: {reason}") from None
    except (ValueError, IndexError):        # IndexError: pyzmq's reader, of a key without a value
        raise ConfigurationError(
            f"{path} is not a ZeroMQ certificate: make one with 'penstock keygen'"
        ) from None
    key = check_public_key(public.decode("ascii", "replace"), str(path))
    return key, "" if secret is None else secret.decode("ascii", "replace")


def _check_pair(path: Path, public: str, secret: str) -> None:
    try:
        derived = zmq.curve_public(secret.encode("ascii"))
    except (zmq.ZMQError, ValueError, UnicodeError):
        derived = b""
    if derived.decode("ascii") != public:
        raise ConfigurationError(f"{path}: public and secret key do not belong together")
