# SPDX-License-Identifier: Apache-2.0
"""The name of a reader: of a living process, of one that has ended, and of one elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys

from penstock.core.errors import InvalidArgument
from penstock.spark_bridge import _one_line, _owner


def test_a_reader_is_dead_when_its_process_has_ended() -> None:
    text = "from penstock.spark_bridge._owner import token; print(token(7), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        owner = process.stdout.readline().strip()
        assert owner.startswith(f"process {process.pid} on ")
        assert not _owner.is_dead(owner)
        process.kill()
        process.wait()
        assert _owner.is_dead(owner)
    mine = _owner.token()
    assert not _owner.is_dead(mine)
    assert _owner.is_dead(mine.replace("(", "(9"))      # another process had the number
    boot = mine.partition("/")[2]
    assert not _owner.is_dead(mine.replace(boot, f"x{boot}"))   # another host's: unknown
    assert not _owner.is_dead("a reader of another kind")


def test_an_error_is_one_line_for_sparks_worker() -> None:
    before = os.environ.pop("SPARK_HIDE_TRACEBACK", None)
    try:
        @_one_line.one_line
        def fails() -> None:
            raise InvalidArgument("first\nsecond")

        try:
            fails()
        except InvalidArgument as error:
            assert str(error) == "first second"
        assert os.environ["SPARK_HIDE_TRACEBACK"] == "1"
    finally:
        os.environ.pop("SPARK_HIDE_TRACEBACK", None)
        if before is not None:
            os.environ["SPARK_HIDE_TRACEBACK"] = before
