# SPDX-License-Identifier: Apache-2.0
"""The product's core: ``CORE`` is ``penstock._core`` as a :class:`Library`.

Only modules of the package ``penstock.core`` import this module. Modules outside this package use
its Python classes and functions instead.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.core.library import Library

try:
    from penstock import _core
except ImportError as error:
    raise ImportError(
        f"the C core penstock._core cannot be loaded ({error}); "
        "in a source tree run 'make ext', otherwise reinstall penstock for this Python and platform"
    ) from error

CORE: Final = Library("penstock._core", _core)
ffi: Final[Any] = CORE.ffi
lib: Final[Any] = CORE.lib

__all__ = ["CORE", "ffi", "lib"]
