# SPDX-License-Identifier: Apache-2.0
"""Spark gives a new Python worker 10 s to connect, which no setting changes.  A busy machine may
take longer to start it.  The program has read nothing by then, so it may simply start again."""

from __future__ import annotations

import subprocess
from typing import Any

LATE_WORKER = "Python worker failed to connect back"
STARTS = 5


def run_spark(argv: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """``subprocess.run`` of a program that uses Spark, again when a worker came too late."""
    for _ in range(STARTS):
        done = subprocess.run(argv, capture_output=True, text=True, check=False, **options)
        if done.returncode == 0 or LATE_WORKER not in done.stdout + done.stderr:
            break
    return done
