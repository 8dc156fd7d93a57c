# SPDX-License-Identifier: Apache-2.0
"""Errors that a user reads: the reason on the first line of Spark's exception, and nothing behind
it.  Spark puts a worker's traceback before the reason, unless its environment says otherwise."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from penstock.core.errors import PenstockError

_HIDE: Final = "SPARK_HIDE_TRACEBACK"   # read by Spark's worker when it passes an exception on
_Q = ParamSpec("_Q")
_T = TypeVar("_T")


def one_line(call: Callable[_Q, _T]) -> Callable[_Q, _T]:
    """Wrap what Spark calls.  An error of ours ends the worker process that it is raised in, so the
    environment is changed for that one exception."""

    @functools.wraps(call)
    def wrapped(*arguments: _Q.args, **words: _Q.kwargs) -> _T:
        try:
            return call(*arguments, **words)
        except PenstockError as error:
            hide(error)
            raise

    return wrapped


def hide(error: PenstockError) -> None:
    """Have Spark pass the reason on without the traceback."""
    os.environ[_HIDE] = "1"
    if error.args and isinstance(error.args[0], str):
        error.args = (" ".join(error.args[0].split("\n")), *error.args[1:])
