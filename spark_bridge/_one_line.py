# SPDX-License-Identifier: Apache-2.0
"""Report a user's mistake in one line, so that the first line of Spark's exception states the
reason, without a traceback. The text of a Spark exception begins with the traceback of the Python
worker, and the reason follows. If the environment variable SPARK_HIDE_TRACEBACK is set, the worker
omits this traceback."""

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
    """Wrap a function that Spark calls. If the wrapped function raises an error of penstock, the
    wrapper sets the environment variable SPARK_HIDE_TRACEBACK. The error ends the worker process,
    so SPARK_HIDE_TRACEBACK affects only this exception."""

    @functools.wraps(call)
    def wrapped(*arguments: _Q.args, **words: _Q.kwargs) -> _T:
        try:
            return call(*arguments, **words)
        except PenstockError as error:
            hide(error)
            raise

    return wrapped


def hide(error: PenstockError) -> None:
    """Set the environment variable that makes Spark report the reason of an exception without the
    traceback.
    """
    os.environ[_HIDE] = "1"
    if error.args and isinstance(error.args[0], str):
        error.args = (" ".join(error.args[0].split("\n")), *error.args[1:])
