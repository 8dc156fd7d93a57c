# SPDX-License-Identifier: Apache-2.0
"""Call methods of objects in the child process of a fork."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable


def call_in_child(method: Callable[[], None]) -> None:
    """Call a bound method in every child that this process forks, as long as the method's object
    exists.

    A function that is registered with ``os.register_at_fork`` can never be removed. The registered
    function therefore refers to the method's object only weakly.
    """
    reference = weakref.WeakMethod(method)

    def after_in_child() -> None:
        found = reference()
        if found is not None:
            found()

    os.register_at_fork(after_in_child=after_in_child)
