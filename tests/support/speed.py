# SPDX-License-Identifier: Apache-2.0
"""How fast Python starts on this machine now, for bounds on CPU time."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

#: CPU time of the modules where a connection takes 0.150 s; at a load of 15 both take 2.2 times
#: that.
LIBRARY_S: Final = 0.055
_LIBRARY: Final = """
import time
began = time.process_time()
import asyncio, concurrent.futures.process, decimal, email.mime.multipart, http.client
import logging.config, pdb, sqlite3, tarfile, unittest.mock, xml.dom.minidom, xmlrpc.client
print(time.process_time() - began)
"""


def library_cpu_s() -> float:
    """The CPU time that an interpreter of its own takes for modules of Python's library."""
    done = subprocess.run(
        [sys.executable, "-c", _LIBRARY], capture_output=True, text=True, check=True
    )
    return float(done.stdout)
