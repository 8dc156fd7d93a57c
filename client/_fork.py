# SPDX-License-Identifier: Apache-2.0
"""Call methods of objects in the child process of a fork."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable


def call_in_child(method: Callable[[], None]) -> None:
    """Register a bound method to be called in every forked child, as long as the object of the
    method exists.

    Python cannot remove a fork hook, so the hook has only a weak reference to the method's object.
    """
    reference = weakref.WeakMethod(method)

    def after_in_child() -> None:
        found = reference()
        if found is not None:
            found()

    os.register_at_fork(after_in_child=after_in_child)
