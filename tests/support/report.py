# SPDX-License-Identifier: Apache-2.0
"""Arguments and reports of the test programs ``support.pub`` and ``support.sub``."""

from __future__ import annotations

import argparse
import json
import sys


def parser() -> argparse.ArgumentParser:
    """What both programs take; the same words as the Java ones."""
    result = argparse.ArgumentParser(allow_abbrev=False)
    result.add_argument("--dir", required=True)
    result.add_argument("--channel", required=True)
    result.add_argument("--stream", type=int, default=1001)
    result.add_argument("--count", type=int, default=0)
    result.add_argument("--destination", action="append", default=[])
    result.add_argument("--timeout-s", type=float, default=60.0)
    return result


def event(name: str, **values: object) -> None:
    """One line on standard output."""
    sys.stdout.write(json.dumps({"event": name, **values}) + "\n")
    sys.stdout.flush()
