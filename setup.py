# SPDX-License-Identifier: Apache-2.0
"""The C extensions and the wheel's tag; everything else is in pyproject.toml."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "core"))
import build_core  # noqa: E402

GLUE = ("penstock._core.c", "penstock._core_sim.c", "penstock._core_bench.c")


class BuildOnce(build_ext):
    """Compiles a source once for all extensions that have it: ``_core_sim`` links the object files
    of ``_core``.  Each processor has a compiler of its own: the build waits for none of them.  The
    glue that cffi writes is half of the code and runs once a call of the control plane: it is built
    for size and without line numbers.  The per-message calls of Python have glue of their own
    (core/fast)."""

    def build_extensions(self) -> None:
        compile_sources = self.compiler.compile
        objects: dict[str, str] = {}

        def compile_new(sources: list[str], **options: Any) -> list[str]:
            flags = options.pop("extra_postargs")

            def compile_one(source: str) -> str:
                own = ["-g0", "-Os"] if source.endswith(GLUE) else []
                made: list[str] = compile_sources(
                    [source], extra_postargs=[*flags, *own], **options
                )
                return made[0]

            new = [source for source in sources if source not in objects]
            new.sort(key=lambda source: not source.endswith(GLUE))      # they take longest
            with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
                objects.update(zip(new, pool.map(compile_one, new), strict=True))
            return [objects[source] for source in sources]

        self.compiler.compile = compile_new
        super().build_extensions()


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
    cffi_modules=[
        "core/build_core.py:ffibuilder",
        "core/build_core.py:sim_ffibuilder",
        "core/build_core.py:bench_ffibuilder",
    ],
    ext_modules=[fast],
    cmdclass={"build_ext": BuildOnce},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
