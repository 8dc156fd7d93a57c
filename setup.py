# SPDX-License-Identifier: Apache-2.0
"""The C extension and the wheel's tag; everything else is in pyproject.toml."""

from setuptools import setup

setup(
    cffi_modules=["core/build_core.py:ffibuilder"],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
