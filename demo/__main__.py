# SPDX-License-Identifier: Apache-2.0
"""``python -m demo``."""

from __future__ import annotations

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)    # nothing is to be cleaned up while modules load
    from demo.run import main

    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
