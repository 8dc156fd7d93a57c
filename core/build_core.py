# SPDX-License-Identifier: Apache-2.0
"""Builds ``penstock._core``, ``_core_sim`` and ``_core_bench`` with cffi (API mode, abi3).

``_core`` is the product.  ``_core_sim`` is the same object files with the simulator's: the process
that simulates drives a core of its own, and no user's process carries an oracle.  ``_core_bench``
has the load loops of ``penstock bench`` and calls ``_core`` through its table of functions.

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
CORE_DECLARATIONS = (
    "core/src/base/ps_types.h",
    "core/include/ps_pressure_view.h",
    "core/include/penstock.h",
    "core/src/client/ps_fast.h",
    "core/src/memory/ps_gather.h",
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
# Every folder with C; a file's folder says what the file may include.
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
#: Of the headers below, but not for Python: glue for these would be dead weight.
NOT_FOR_PYTHON = re.compile(
    r"^[^\n;{}]*\b(?:ps_driver_faults|ps_pub_ordinal_limit|ps_sub_image|ps_log_file_length)"
    r"\([^;]*\);\n",
    re.MULTILINE,
)
# The glue that cffi writes is half of the code and runs once a call of the control plane: it is
# built for size.  The per-message calls of Python have glue of their own (core/fast).
GLUE_FOR_SIZE = '#pragma GCC optimize ("Os")\n'
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


def source_files(root: Path = ROOT, folders: tuple[str, ...] = FOLDERS) -> list[Path]:
    """Return the C sources of ``folders`` below ``root``, in a fixed order."""
    return [path for folder in folders for path in sorted((root / folder).glob("*.c"))]


def header_files(root: Path = ROOT, folders: tuple[str, ...] = FOLDERS) -> list[Path]:
    """Return the headers of ``folders`` below ``root``, in a fixed order."""
    return [path for folder in folders for path in sorted((root / folder).glob("*.h"))]


def declaration(text: str) -> str:
    """The C declarations in a header, without comments, preprocessor lines and ``extern "C"``."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(
        r"#ifdef __cplusplus\n.*?#endif[^\n]*\n", "", text, flags=re.DOTALL
    )
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n\s*\n+", "\n", text)


def build_flags(*, line_numbers: bool = True) -> dict[str, list[str]]:
    """Arguments of an extension of ours: how to compile and to link.

    ``line_numbers`` says whether a release keeps line numbers for profilers and debuggers.
    """
    build = os.environ.get("PENSTOCK_BUILD", "release")
    if build not in BUILD_FLAGS:
        raise SystemExit(f"PENSTOCK_BUILD={build}: expected one of {', '.join(BUILD_FLAGS)}")
    compile_flags, link_flags = BUILD_FLAGS[build]
    if build == "release" and not line_numbers:
        link_flags = [*link_flags, "-Wl,--strip-debug"]
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
    line_numbers: bool = True,
) -> FFI:
    """The builder of extension ``name`` from the C of ``folders``.

    ``declarations`` are the headers that Python sees; the types of ``uses`` are its types too, and
    ``included`` the headers these come from.
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
        GLUE_FOR_SIZE
        + "\n".join(f'#include "{Path(path).name}"' for path in (*included, *declarations)),
        sources=[str(path.relative_to(ROOT)) for path in source_files(ROOT, folders)],
        include_dirs=list(FOLDERS),
        depends=[
            "core/build_core.py",
            *(str(path.relative_to(ROOT)) for path in header_files(ROOT, folders)),
        ],
        **build_flags(line_numbers=line_numbers),
    )
    return builder


ffibuilder = make_builder("penstock._core", CORE_DECLARATIONS, CORE_FOLDERS)
sim_ffibuilder = make_builder(
    "penstock._core_sim",
    (*CORE_DECLARATIONS, "sim/native/world/ps_sim.h"),
    (*CORE_FOLDERS, *SIM_FOLDERS),
    line_numbers=False,  # the product has them; twice they would be a third of the wheel
)
bench_ffibuilder = make_builder(
    "penstock._core_bench",
    ("penstock/_bench/native/ps_bench.h",),
    BENCH_FOLDERS,
    uses=ffibuilder,
    included=CORE_DECLARATIONS,
)
