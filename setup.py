# SPDX-License-Identifier: Apache-2.0
"""The C extensions and the wheel's tag; everything else is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "core"))
import build_core  # noqa: E402

fast = Extension(
    "penstock._fast",
    sources=sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("core/fast/*.c")),
    depends=["core/fast/fast.h", "core/src/client/ps_fast.h", "core/include/penstock.h"],
    include_dirs=[*build_core.FOLDERS, "core/fast"],
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    py_limited_api=True,
    **build_core.build_flags(),
)

setup(
    cffi_modules=["core/build_core.py:ffibuilder"],
    ext_modules=[fast],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
