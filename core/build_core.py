# SPDX-License-Identifier: Apache-2.0
"""Builds ``penstock._core`` with cffi (API mode, abi3).

The declaration handed to cffi is made from the C headers themselves, so that there is one
contract and no copy of it: preprocessor lines, comments and the ``extern "C"`` blocks are taken
out, the rest must be plain C.  ``PENSTOCK_BUILD`` chooses ``release`` (default), ``asan`` or
``tsan``.
"""

import os
import re
from pathlib import Path

from cffi import FFI

CORE = Path(__file__).resolve().parent
ROOT = CORE.parent
# Order matters: a header's types come before their users.
DECLARATIONS = (
    "src/ps_types.h",
    "include/penstock.h",
    "src/ps_fast.h",
    "src/ps_gather.h",
    "src/ps_admin.h",
    "src/ps_driver.h",
    "src/ps_log_reader.h",
    "src/ps_sim.h",
    "src/ps_bench.h",
)
COMMON_FLAGS = [
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-UNDEBUG",  # cheap assertions stay on in release builds
    "-fvisibility=hidden",
    "-fno-omit-frame-pointer",
]
BUILD_FLAGS = {
    "release": (["-O2", "-g1"], []),
    "asan": (
        ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
        ["-fsanitize=address,undefined"],
    ),
    "tsan": (["-O1", "-g", "-fsanitize=thread"], ["-fsanitize=thread"]),
}


def present_headers() -> list[Path]:
    return [CORE / name for name in DECLARATIONS if (CORE / name).exists()]


def declaration(text: str) -> str:
    """The C declarations in a header, without comments, preprocessor lines and ``extern "C"``."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(
        r"#ifdef __cplusplus\n.*?#endif[^\n]*\n", "", text, flags=re.DOTALL
    )
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n\s*\n+", "\n", text)


def build_flags() -> dict[str, list[str]]:
    """Arguments of an extension of ours: how to compile and to link."""
    build = os.environ.get("PENSTOCK_BUILD", "release")
    if build not in BUILD_FLAGS:
        raise SystemExit(f"PENSTOCK_BUILD={build}: expected one of {', '.join(BUILD_FLAGS)}")
    compile_flags, link_flags = BUILD_FLAGS[build]
    return {
        "extra_compile_args": [*COMMON_FLAGS, *compile_flags],
        "extra_link_args": ["-pthread", *link_flags],
    }


def make_builder() -> FFI:
    headers = present_headers()
    sources = [f"core/src/{path.name}" for path in sorted((CORE / "src").glob("*.c"))]
    builder = FFI()
    # Typedefs may be repeated in C11 but not in a cdef: forward declarations are kept once.
    seen: set[str] = set()
    for header in headers:
        lines = []
        for line in declaration(header.read_text(encoding="utf-8")).splitlines():
            if re.fullmatch(r"typedef struct \w+ \w+;", line.strip()):
                if line.strip() in seen:
                    continue
                seen.add(line.strip())
            lines.append(line)
        builder.cdef("\n".join(lines))
    builder.set_source(
        "penstock._core",
        "\n".join(f'#include "{header.name}"' for header in headers),
        sources=sources,
        include_dirs=["core/include", "core/src"],
        depends=[str(p.relative_to(ROOT)) for p in sorted(CORE.glob("*/*.h"))],
        **build_flags(),
    )
    return builder


ffibuilder = make_builder()
