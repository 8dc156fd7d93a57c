# SPDX-License-Identifier: Apache-2.0
"""The one door to the C core: ``ffi`` and ``lib`` of ``penstock._core``.

Only modules below ``penstock.core`` import this; everything above sees Python types.
"""

from __future__ import annotations

from typing import Any

try:
    from penstock import _core
except ImportError as error:
    raise ImportError(
        f"the C core penstock._core cannot be loaded ({error}); "
        "in a source tree run 'make ext', otherwise reinstall penstock for this Python and platform"
    ) from error

ffi: Any = _core.ffi
lib: Any = _core.lib

__all__ = ["ffi", "lib"]
