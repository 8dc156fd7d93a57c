# SPDX-License-Identifier: Apache-2.0
"""Fuzz target: any file is an allow-list, a directory's key file or a secret file, or a
ConfigurationError of one line; what is on the list is a key, and no other key is."""

from __future__ import annotations

import atexit
import re
import shutil
import sys
import tempfile
from pathlib import Path

from penstock.config.protocol.keys import CurveKeys, load_public_key
from penstock.core.errors import ConfigurationError
from penstock.daemon.curve import AllowList

KEY = b"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
SECRET = b"JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6"
WORDS = [
    KEY, SECRET, KEY[:39], b"#", b"# ", b"\n", b"\r", b" ", b"\t", b"\x00", b"\xff", b"=", b"'",
    b"\xef\xbb\xbf", b"metadata\n", b"curve\n", b'    public-key = "', b'    secret-key = "',
    b'"\n', "\u2028".encode(), "\u00a0".encode(), "\u0661".encode(),
]
_FOLDER = Path(tempfile.mkdtemp(prefix="penstock-fuzz-", dir="/dev/shm"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)
_FILE = _FOLDER / "one.key"
_FILE.touch(0o600)


def target(data: bytes) -> None:
    _FILE.write_bytes(data)
    try:
        allowed = AllowList(_FILE)
        for word in data.split()[:4]:
            text = word.decode("utf-8", "replace")
            assert text not in allowed or re.fullmatch(r"[!-~]{40}", text)
    except ConfigurationError as error:
        assert "\n" not in str(error)
    try:
        key = load_public_key(_FILE)
        assert re.fullmatch(r"[!-~]{40}", key)
        assert key in AllowList(_FOLDER)
        assert CurveKeys.load(_FILE).secret != key
    except ConfigurationError as error:
        assert "\n" not in str(error)


if __name__ == "__main__":
    from _mutate import main

    sys.exit(main(target, "keys", WORDS))
