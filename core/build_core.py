# SPDX-License-Identifier: Apache-2.0
"""Builds ``penstock._core``, ``_core_sim`` and ``_core_bench`` with cffi (API mode, abi3).

``_core`` is the product. ``_core_sim`` contains the same object files as ``_core``, and in addition
those of the simulator. Applications do not load ``_core_sim``, so their processes do not contain
the oracles (the simulator's checks). ``_core_bench`` has the load loops of ``penstock bench``; they
call ``_core`` through the table of functions in ``ps_fast.h``.

This module extracts the declarations for cffi from the C headers, so that no second copy of them
exists. This module removes preprocessor lines, comments and ``extern "C"`` blocks from the headers;
the rest must be plain C. ``PENSTOCK_BUILD`` chooses ``release`` (default), ``profile``, ``asan`` or
``tsan``.
"""

import os
import re
from pathlib import Path

from cffi import FFI

CORE = Path(__file__).resolve().parent
ROOT = CORE.parent
# Types come before their users, so the order matters.
CORE_DECLARATIONS = (
    "core/src/base/ps_types.h",
    "core/include/ps_pressure_view.h",
    "core/include/ps_credit_view.h",
    "core/include/penstock.h",
    "core/src/client/ps_fast.h",
    "core/src/memory/ps_gather.h",
    "core/src/memory/ps_digest.h",
    "core/src/base/ps_cause.h",
    "core/src/memory/ps_cnc.h",
    "core/src/memory/ps_slots.h",
    "core/src/memory/ps_logfile.h",
    "core/src/transport/ps_networks.h",
    "core/src/protocol/ps_choices.h",
    "core/src/agent/ps_driver_params.h",
    "core/src/agent/ps_event.h",
    "core/src/sender/ps_publication_params.h",
    "core/src/receiver/ps_image_params.h",
    "core/src/driver/ps_driver.h",
    "core/src/driver/ps_group_log.h",
)
SIM_DECLARATIONS = (
    "sim/native/network/ps_simnet.h",
    "sim/native/world/ps_simworld.h",
    "sim/native/oracle/ps_sim_oracle.h",
)
# Every folder with C; a file's folder decides which files it may include.
CORE_FOLDERS = (
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
)
SIM_FOLDERS = ("sim/native/network", "sim/native/world", "sim/native/oracle")
BENCH_FOLDERS = ("penstock/_bench/native",)
FOLDERS = (*CORE_FOLDERS, *SIM_FOLDERS, *BENCH_FOLDERS)
#: Declarations of these headers that Python does not use, and that need no glue code.
NOT_FOR_PYTHON = re.compile(
    r"^[^\n;{}]*\b(?:ps_driver_faults|ps_pub_ordinal_limit|ps_sub_image|ps_log_file_length)"
    r"\([^;]*\);\n",
    re.MULTILINE,
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
    # Frame pointers and names of functions, for profilers; no line numbers, which would be an
    # eighth of the wheel, and no tables for exceptions that C does not have.
    "release": (["-O2", "-fno-asynchronous-unwind-tables"], ["-Wl,--strip-debug"]),
    # The same code with line numbers, for `perf annotate` and gdb.
    "profile": (["-O2", "-g1", "-fno-asynchronous-unwind-tables"], []),
    "asan": (
        ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"],
        ["-fsanitize=address,undefined"],
    ),
    "tsan": (["-O1", "-g", "-fsanitize=thread"], ["-fsanitize=thread"]),
}


def source_files(root: Path = ROOT, folders: tuple[str, ...] = FOLDERS) -> list[Path]:
    """Return the C sources of ``folders`` below ``root``, in a fixed order."""
    return [path for folder in folders for path in sorted((root / folder).glob("*.c"))]


def header_files(root: Path = ROOT, folders: tuple[str, ...] = FOLDERS) -> list[Path]:
    """Return the headers of ``folders`` below ``root``, in a fixed order."""
    return [path for folder in folders for path in sorted((root / folder).glob("*.h"))]


def declaration(text: str) -> str:
    """Return the C declarations of a header, without comments, preprocessor lines and ``extern
    "C"``."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(
        r"#ifdef __cplusplus\n.*?#endif[^\n]*\n", "", text, flags=re.DOTALL
    )
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n\s*\n+", "\n", text)


def build_flags() -> dict[str, list[str]]:
    """Return the compiler and linker arguments of an extension."""
    build = os.environ.get("PENSTOCK_BUILD", "release")
    if build not in BUILD_FLAGS:
        raise SystemExit(f"PENSTOCK_BUILD={build}: expected one of {', '.join(BUILD_FLAGS)}")
    compile_flags, link_flags = BUILD_FLAGS[build]
    return {
        "extra_compile_args": [*COMMON_FLAGS, *compile_flags],
        "extra_link_args": ["-pthread", *link_flags],
    }


def make_builder(
    name: str,
    declarations: tuple[str, ...],
    folders: tuple[str, ...],
    *,
    uses: FFI | None = None,
    included: tuple[str, ...] = (),
) -> FFI:
    """Return the builder of extension ``name`` from the C files of ``folders``.

    ``declarations`` lists the headers whose functions and types Python code can use. If the
    extension uses C types of another extension, ``uses`` is the other extension's builder, and
    ``included`` lists the headers that declare these types.
    """
    headers = [ROOT / path for path in declarations]
    builder = FFI()
    if uses is not None:
        builder.include(uses)
    # Typedefs may be repeated in C11 but not in a cdef: forward declarations are kept once.
    seen: set[str] = set()
    for header in headers:
        lines = []
        text = NOT_FOR_PYTHON.sub("", declaration(header.read_text(encoding="utf-8")))
        for line in text.splitlines():
            if re.fullmatch(r"typedef struct \w+ \w+;", line.strip()):
                if line.strip() in seen:
                    continue
                seen.add(line.strip())
            lines.append(line)
        builder.cdef("\n".join(lines))
    builder.set_source(
        name,
        "\n".join(f'#include "{Path(path).name}"' for path in (*included, *declarations)),
        sources=[str(path.relative_to(ROOT)) for path in source_files(ROOT, folders)],
        include_dirs=list(FOLDERS),
        depends=[
            "core/build_core.py",
            *(str(path.relative_to(ROOT)) for path in header_files(ROOT, folders)),
        ],
        **build_flags(),
    )
    return builder


ffibuilder = make_builder("penstock._core", CORE_DECLARATIONS, CORE_FOLDERS)
sim_ffibuilder = make_builder(
    "penstock._core_sim",
    (*CORE_DECLARATIONS, *SIM_DECLARATIONS),
    (*CORE_FOLDERS, *SIM_FOLDERS),
)
bench_ffibuilder = make_builder(
    "penstock._core_bench",
    ("penstock/_bench/native/ps_bench.h",),
    BENCH_FOLDERS,
    uses=ffibuilder,
    included=CORE_DECLARATIONS,
)
