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
    "core/src/base/ps_types.h",
    "core/include/penstock.h",
    "core/src/client/ps_fast.h",
    "core/src/memory/ps_gather.h",
    "core/src/memory/ps_admin.h",
    "core/src/driver/ps_driver.h",
    "core/src/driver/ps_log_reader.h",
    "sim/native/world/ps_sim.h",
    "penstock/_bench/native/ps_bench.h",
)
# Every folder with C of the extension; a file's folder says what the file may include.
FOLDERS = (
    "core/include",
    "core/src/base",
    "core/src/wire",
    "core/src/memory",
    "core/src/transport",
    "core/src/protocol",
    "core/src/agent",
    "core/src/sender",
    "core/src/receiver",
    "core/src/driver",
    "core/src/client",
    "sim/native/network",
    "sim/native/world",
    "sim/native/oracle",
    "penstock/_bench/native",
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


def source_files(root: Path = ROOT) -> list[Path]:
    """Return the C sources of the extension below ``root``, in a fixed order."""
    return [path for folder in FOLDERS for path in sorted((root / folder).glob("*.c"))]


def header_files(root: Path = ROOT) -> list[Path]:
    """Return the headers that the sources include, in a fixed order."""
    return [path for folder in FOLDERS for path in sorted((root / folder).glob("*.h"))]


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
    headers = [ROOT / name for name in DECLARATIONS]
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
        sources=[str(path.relative_to(ROOT)) for path in source_files()],
        include_dirs=list(FOLDERS),
        depends=[str(path.relative_to(ROOT)) for path in header_files()],
        **build_flags(),
    )
    return builder


ffibuilder = make_builder()
